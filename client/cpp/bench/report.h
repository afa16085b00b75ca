// A run's report, as text and as JSON.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_REPORT_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_REPORT_H_

#include <cstdint>
#include <string>

#include "client/cpp/bench/measurement.h"
#include "client/cpp/bench/settings.h"

namespace counterweight::bench {

// One JSON object and a newline; README.md lists its members. `num_positions`
// is one batch's.
std::string JsonReport(const Settings& settings, int64_t num_positions,
                       const Measurement& measurement);

// The same report as text.
std::string TextReport(const Settings& settings, int64_t num_positions,
                       const Measurement& measurement);

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_REPORT_H_
