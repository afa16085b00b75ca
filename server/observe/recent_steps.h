// Sums over a run's newest eight steps, which alerts compare with the run's
// calm level: single batches vary too much for two or three times that.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RECENT_STEPS_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RECENT_STEPS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>

#include "server/observe/metrics.h"
#include "server/observe/run_steps.h"
#include "server/observe/run_sums_table.h"
#include "server/observe/series.h"

namespace counterweight::server {

// Not thread-safe.
class RecentSteps {
 public:
  static constexpr size_t kSteps = 8;

  // `metrics` must outlive this.
  RecentSteps(DriftMetrics* metrics, const prometheus::Labels& labels);

  // Adds a batch to its step; one without a step is a step by itself, and one
  // without tokens is none. Gauges show the sums once there are kSteps. Batches
  // of steps before these change nothing, as in RunSteps: kMostLate of them in
  // a row are of a run that went back to a checkpoint, and its steps begin
  // anew.
  void Add(std::optional<int64_t> step, const PublishedBatch& batch,
           TimedGauge::Time now);
  // Hides the gauges with a last value from before `oldest`.
  void HideGaugesBefore(TimedGauge::Time oldest);

 private:
  using Sums = std::array<double, std::size(kRecentSums)>;
  struct Step {
    std::optional<int64_t> step;
    Sums sums{};
  };

  // True if the batch's step is before all that are held.
  bool IsLate(std::optional<int64_t> step) const;
  void BeginAnew();
  Step& FindOrAdd(std::optional<int64_t> step);

  std::deque<Step> steps_;         // oldest first by their first batch
  int num_late_ = 0;               // batches since the last that was added
  std::deque<TimedGauge> gauges_;  // parallel to kRecentSums
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RECENT_STEPS_H_
