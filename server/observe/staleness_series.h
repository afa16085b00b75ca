// The Prometheus series of one run's staleness.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_STALENESS_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_STALENESS_SERIES_H_

#include <deque>
#include <string>

#include "kernels/staleness_sums.h"
#include "server/observe/metrics.h"
#include "server/observe/series.h"

namespace counterweight::server {

// "2", "3-4", "9+".
std::string StalenessLabel(kernels::StalenessRange range);

// Tokens whose version the request left out.
inline constexpr char kUnknownStaleness[] = "unknown";

// Not thread-safe.
class StalenessSeries {
 public:
  // `metrics` must outlive this.
  StalenessSeries(DriftMetrics* metrics, const prometheus::Labels& run);

  // Adds a batch; does nothing if no versions came.
  void Publish(const kernels::StalenessSums& sums);

 private:
  struct Bucket {
    Bucket(DriftMetrics* metrics, const prometheus::Labels& labels)
        : tokens(metrics->run_staleness_tokens, labels),
          kl(metrics->run_staleness_kl, labels),
          k3(metrics->run_staleness_k3, labels) {}

    Series<Counter> tokens;
    Series<Gauge> kl;
    Series<Gauge> k3;
  };

  Series<Histogram> staleness_;
  Series<Counter> unknown_;
  // A deque, as series cannot be moved; parallel to kStalenessBuckets.
  std::deque<Bucket> buckets_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_STALENESS_SERIES_H_
