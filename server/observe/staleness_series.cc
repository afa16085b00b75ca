#include "server/observe/staleness_series.h"

#include "server/engine/bounded_sums.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

prometheus::Labels WithStaleness(prometheus::Labels labels,
                                 std::string staleness) {
  labels.emplace("staleness", std::move(staleness));
  return labels;
}

}  // namespace

std::string StalenessLabel(kernels::StalenessRange range) {
  if (range.last == kernels::kOpenEnd) return fmt::format("{}+", range.first);
  if (range.last == range.first) return fmt::format("{}", range.first);
  return fmt::format("{}-{}", range.first, range.last);
}

StalenessSeries::StalenessSeries(DriftMetrics* metrics,
                                 const prometheus::Labels& run)
    : staleness_(metrics->run_staleness, run, StalenessBuckets()),
      unknown_(metrics->run_staleness_tokens,
               WithStaleness(run, kUnknownStaleness), Addends::kCounts) {
  for (const kernels::StalenessRange& range : kernels::kStalenessBuckets) {
    buckets_.emplace_back(metrics, WithStaleness(run, StalenessLabel(range)));
  }
}

void StalenessSeries::Count(const PublishedSums::Staleness& sums) {
  if (sums.measured == 0) return;
  staleness_.Add(sums.histogram, BoundedStaleness(sums));
  unknown_.Add(static_cast<double>(sums.unknown_tokens));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const kernels::StalenessBucketSums& bucket = sums.buckets[b];
    buckets_[b].tokens.Add(static_cast<double>(bucket.tokens));
    buckets_[b].k3_sum.Add(BoundedK3(bucket.k3, bucket.tokens));
  }
}

void StalenessSeries::Show(const PublishedSums::Staleness& sums,
                           TimedGauge::Time now) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const kernels::StalenessBucketSums& bucket = sums.buckets[b];
    if (bucket.tokens == 0) continue;
    buckets_[b].kl.Set(kernels::KlOf(bucket), now);
    buckets_[b].k3.Set(kernels::K3Of(bucket), now);
  }
}

void StalenessSeries::HideGaugesBefore(TimedGauge::Time oldest) {
  for (Bucket& bucket : buckets_) {
    bucket.kl.HideIfBefore(oldest);
    bucket.k3.HideIfBefore(oldest);
  }
}

}  // namespace counterweight::server
