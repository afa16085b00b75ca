// The Prometheus series of one run's staleness.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_STALENESS_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_STALENESS_SERIES_H_

#include <deque>
#include <string>

#include "kernels/staleness_sums.h"
#include "server/engine/published_sums.h"
#include "server/observe/metrics.h"
#include "server/observe/series.h"
#include "server/observe/total.h"

namespace counterweight::server {

// "2", "3-4", "9+".
std::string StalenessLabel(kernels::StalenessRange range);

// Tokens without a version in the request.
inline constexpr char kUnknownStaleness[] = "unknown";

// Not thread-safe.
class StalenessSeries {
 public:
  // `metrics` must outlive this.
  StalenessSeries(DriftMetrics* metrics, const prometheus::Labels& run);

  // Adds a batch; does nothing without versions.
  void Count(const PublishedSums::Staleness& sums);
  // Shows the drift of each range that has tokens.
  void Show(const PublishedSums::Staleness& sums, TimedGauge::Time now);
  void HideGaugesBefore(TimedGauge::Time oldest);

 private:
  struct Bucket {
    Bucket(DriftMetrics* metrics, const prometheus::Labels& labels)
        : tokens(metrics->run_staleness_tokens, labels, Addends::kCounts),
          k3_sum(metrics->run_staleness_k3_sum, labels, Addends::kNumbers),
          kl(metrics->run_staleness_kl, labels),
          k3(metrics->run_staleness_k3, labels) {}

    Total tokens;
    Total k3_sum;
    TimedGauge kl;
    TimedGauge k3;
  };

  TotalHistogram staleness_;
  Total unknown_;
  // A deque, as series cannot be moved; parallel to kStalenessBuckets.
  std::deque<Bucket> buckets_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_STALENESS_SERIES_H_
