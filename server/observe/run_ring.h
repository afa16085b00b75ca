// The last batches of a run, which the page draws.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RUN_RING_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RUN_RING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/observe/drift_report.h"
#include "server/observe/drift_table.h"

namespace counterweight::server {

// One batch that had tokens, or one step.
struct RunPoint {
  int64_t unix_milliseconds;  // of the last part
  std::optional<int64_t> step;
  // By kDriftGauges; NaN: not measured.
  std::array<double, std::size(kDriftGauges)> gauges;
  // Tokens by log ratio; see kernels::kHistogramEdges.
  std::array<int64_t, kernels::kNumHistogramEdges + 1> histogram;
};

// Keeps a bounded number of batches; about 300 bytes each. Not thread-safe.
class RunRing {
 public:
  explicit RunRing(size_t capacity) : capacity_(capacity) {}

  // Takes the place of the same step's earlier point or, if the ring is full,
  // the oldest one's. `drift` is that of `shown`.
  void Add(const ShownBatch& shown, const RunDrift& drift,
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
