#include "server/observe/recent_steps.h"

#include <algorithm>

#include "server/observe/run_series.h"

namespace counterweight::server {

RecentSteps::RecentSteps(DriftMetrics* metrics,
                         const prometheus::Labels& labels) {
  for (auto* family : metrics->run_recent_sums) {
    gauges_.emplace_back(*family, labels);
  }
}

void RecentSteps::Add(std::optional<int64_t> step, const PublishedBatch& batch,
                      TimedGauge::Time now) {
  if (batch.sums.tokens == 0) return;
  if (IsLate(step)) {
    if (++num_late_ < RunSteps::kMostLate) return;
    BeginAnew();
  }
  num_late_ = 0;
  Step& own = FindOrAdd(step);
  const ShownBatch shown{.batch = &batch};
  for (size_t i = 0; i < own.sums.size(); ++i) {
    const RecentSum& sum = kRecentSums[i];
    if (IsMeasured(sum.needs, shown)) own.sums[i] += sum.of(batch.sums);
  }
  if (steps_.size() < kSteps) return;
  for (size_t i = 0; i < gauges_.size(); ++i) {
    if (!IsMeasured(kRecentSums[i].needs, shown)) continue;
    double all = 0;
    for (const Step& each : steps_) all += each.sums[i];
    gauges_[i].Set(all, now);
  }
}

bool RecentSteps::IsLate(std::optional<int64_t> step) const {
  return step.has_value() && steps_.size() == kSteps &&
         std::all_of(steps_.begin(), steps_.end(), [&](const Step& each) {
           return each.step.has_value() && *step < *each.step;
         });
}

void RecentSteps::BeginAnew() {
  steps_.clear();
  HideGaugesBefore(TimedGauge::Time::max());
}

RecentSteps::Step& RecentSteps::FindOrAdd(std::optional<int64_t> step) {
  const auto found = std::find_if(
      steps_.begin(), steps_.end(),
      [&](const Step& each) { return step.has_value() && each.step == step; });
  if (found != steps_.end()) return *found;
  if (steps_.size() == kSteps) steps_.pop_front();
  return steps_.emplace_back(Step{.step = step});
}

void RecentSteps::HideGaugesBefore(TimedGauge::Time oldest) {
  for (TimedGauge& gauge : gauges_) gauge.HideIfBefore(oldest);
}

}  // namespace counterweight::server
