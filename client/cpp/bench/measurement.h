// What a run measured.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_MEASUREMENT_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_MEASUREMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/response.h"
#include "client/cpp/status.h"

namespace counterweight::bench {

// Seconds of one call, or sums over many. `transport` is what is left of the
// call when the server's stages are taken out; where they overlap with it (a
// stream's rows are computed while others travel) it is too small.
struct Stages {
  // From the intended begin to the real one; only with a rate.
  double wait = 0;
  double queue = 0;
  double decode = 0;
  double compute = 0;
  double encode = 0;
  double transport = 0;
};

struct Measurement {
  // From the first measured begin to the last end.
  double seconds = 0;
  // Answered ones. Their bytes and seconds are the ones that count.
  uint64_t requests = 0;
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  Stages stages;
  // Seconds of each request, ascending once Merge is over; with a rate from the
  // intended begin.
  std::vector<double> latencies;
  // Failed calls by code, and the first one's status as text.
  std::map<client::StatusCode, uint64_t> errors;
  std::string first_error;
  // How the last answer travelled.
  client::Transport transport = client::Transport::kAuto;

  // Adds one answered call: begun `wait` seconds late, and `duration` seconds
  // long.
  void Add(double wait, double duration, const client::Response& response);
  void AddError(const client::Status& status);
  // Adds another worker's.
  void Merge(const Measurement& other);
  // Seconds that a share of the requests, in (0, 1], did not exceed (nearest
  // rank). 0 without requests. REQUIRES: latencies ascend.
  double Quantile(double share) const;
};

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_MEASUREMENT_H_
