// A run's report, as text and as JSON.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_REPORT_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_REPORT_H_

#include <cstdint>
#include <string>

#include "client/cpp/bench/measurement.h"
#include "client/cpp/bench/settings.h"

namespace counterweight::bench {

// One JSON object and a newline. `num_positions` is one batch's. After the
// settings (`transport` is the one used) follow
//   seconds               first measured begin to last end
//   requests, errors      answered; failed by code (first_error: as text)
//   input_bytes, output_bytes  of all answered requests' tensors
//   gigabytes_per_second  up and down together, 1e9 bytes/s
//   tokens_per_second, requests_per_second  masked positions included
//   latency_seconds       p50, p99, p99.9, max, nearest rank
//   stage_seconds         means: wait (late begin at a rate), the server's
//                         queue, decode, compute, encode, and the rest,
//                         transport
std::string JsonReport(const Settings& settings, int64_t num_positions,
                       const Measurement& measurement);

// The same report as text.
std::string TextReport(const Settings& settings, int64_t num_positions,
                       const Measurement& measurement);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_REPORT_H_
