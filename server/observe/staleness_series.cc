#include "server/observe/staleness_series.h"

#include <iterator>

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
    : staleness_(metrics->run_staleness, run),
      unknown_(metrics->run_staleness_tokens,
               WithStaleness(run, kUnknownStaleness)) {
  for (const kernels::StalenessRange& range : kernels::kStalenessBuckets) {
    buckets_.emplace_back(metrics, WithStaleness(run, StalenessLabel(range)));
  }
}

void StalenessSeries::Publish(const kernels::StalenessSums& sums) {
  if (sums.measured == 0) return;
  staleness_.Get(StalenessBuckets())
      .ObserveMultiple({std::begin(sums.histogram), std::end(sums.histogram)},
                       sums.staleness);
  unknown_.Get().Increment(static_cast<double>(sums.unknown_tokens));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const kernels::StalenessBucketSums& bucket = sums.buckets[b];
    buckets_[b].tokens.Get().Increment(static_cast<double>(bucket.tokens));
    if (bucket.tokens == 0) continue;
    buckets_[b].kl.Get().Set(kernels::KlOf(bucket));
    buckets_[b].k3.Get().Set(kernels::K3Of(bucket));
  }
}

}  // namespace counterweight::server
