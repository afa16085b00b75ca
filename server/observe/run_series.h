// The Prometheus series of one run.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RUN_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RUN_SERIES_H_

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "server/engine/published_sums.h"
#include "server/observe/drift_report.h"
#include "server/observe/drift_table.h"
#include "server/observe/metrics.h"
#include "server/observe/series.h"
#include "server/observe/staleness_series.h"
#include "server/observe/total.h"

namespace counterweight::server {

// All series with one value of the label run. Not thread-safe.
class RunSeries {
 public:
  // Rule names that have series of their own; clients may invent names, and
  // later ones are published as "other".
  static constexpr size_t kMaxRuleNames = 32;

  // `metrics` must outlive this.
  RunSeries(DriftMetrics* metrics, const std::string& run);

  // Counts one batch.
  void Count(const PublishedBatch& batch);
  // Shows the drift of `shown`.
  void Show(const ShownBatch& shown, const RunDrift& drift,
            TimedGauge::Time now);
  // Hides the gauges with a last value from before `oldest`.
  void HideGaugesBefore(TimedGauge::Time oldest);

 private:
  struct Dropped {
    Dropped(DriftMetrics* metrics, const prometheus::Labels& labels)
        : tokens(metrics->run_dropped_tokens, labels, Addends::kCounts),
          sequences(metrics->run_dropped_sequences, labels, Addends::kCounts) {}

    Total tokens;
    Total sequences;
  };

  Dropped& DroppedBy(const std::string& rule);

  DriftMetrics* const metrics_;
  const prometheus::Labels labels_;
  // A deque, as series cannot be moved.
  std::deque<Total> counters_;     // parallel to kRunCounters
  std::deque<Total> sums_;         // parallel to kRunSums
  std::deque<TimedGauge> gauges_;  // parallel to kDriftGauges
  TotalHistogram token_log_ratio_, sequence_log_ratio_;
  StalenessSeries staleness_;
  std::map<std::string, Dropped> dropped_;
};

// Returns the numbers for the gauges; none without tokens.
std::optional<RunDrift> Measure(const ShownBatch& shown);

// True if gauges with this need show it.
bool IsMeasured(Needs needs, const ShownBatch& shown);

// The batch's increment of the counter.
double Amount(const BatchCounter& counter, const PublishedSums& sums);

// Adds the batch to the two histograms.
void ObserveLogRatios(const PublishedSums::Drift& drift, TotalHistogram* tokens,
                      TotalHistogram* sequences);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RUN_SERIES_H_
