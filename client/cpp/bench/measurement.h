// Measurements of a run.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_MEASUREMENT_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_MEASUREMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/cpp/response.h"
#include "client/cpp/status.h"

namespace counterweight::bench {

// Seconds of one call, or sums over many. `transport` is the call's time
// without the server's stages; it is too small where they overlap (a stream
// computes rows while others travel).
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
  // Answered requests. Only their bytes and seconds count.
  uint64_t requests = 0;
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  Stages stages;
  // Seconds of each request from its intended begin; ascending after Merge.
  std::vector<double> latencies;
  // Failed calls by code, and the first one's status as text.
  std::map<client::StatusCode, uint64_t> errors;
  std::string first_error;
  // Transport of the last answer.
  client::Transport transport = client::Transport::kAuto;

  // Adds one answered call that began `wait` seconds late and took `duration`
  // seconds.
  void Add(double wait, double duration, const client::Response& response);
  void AddError(const client::Status& status);
  // Adds another worker's measurements.
  void Merge(const Measurement& other);
  // Seconds that a share of the requests, in (0, 1], did not exceed (nearest
  // rank); 0 without requests. REQUIRES: latencies ascend.
  double Quantile(double share) const;
};

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_MEASUREMENT_H_
