// The last batches of a run, which the page draws.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RUN_RING_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RUN_RING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/observe/drift_report.h"
#include "server/observe/drift_table.h"

namespace counterweight::server {

// One batch that had tokens.
struct RunPoint {
  int64_t unix_milliseconds;
  // By kDriftGauges; NaN: not measured.
  std::array<double, std::size(kDriftGauges)> gauges;
  // Tokens by log ratio; see kernels::kHistogramEdges.
  std::array<int64_t, kernels::kNumHistogramEdges + 1> histogram;
};

// Keeps a bounded number of batches; about 300 bytes each. Not thread-safe.
class RunRing {
 public:
  explicit RunRing(size_t capacity) : capacity_(capacity) {}

  // Takes the oldest one's place if the ring is full. `drift` is that of the
  // report.
  void Add(const DriftReport& report, const RunDrift& drift,
           int64_t unix_milliseconds);

  // Oldest first.
  std::vector<RunPoint> Points() const;

 private:
  const size_t capacity_;
  std::vector<RunPoint> points_;
  size_t oldest_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RUN_RING_H_
