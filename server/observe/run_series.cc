#include "server/observe/run_series.h"

#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace counterweight::server {

RunSeries::RunSeries(DriftMetrics* metrics, const std::string& run)
    : metrics_(metrics),
      labels_({{"run", run}}),
      token_log_ratio_(metrics->run_token_log_ratio, labels_,
                       LogRatioBuckets()),
      sequence_log_ratio_(metrics->run_sequence_log_ratio, labels_,
                          LogRatioBuckets()),
      staleness_(metrics, labels_) {
  for (auto* family : metrics->run_counters) {
    counters_.emplace_back(*family, labels_, Addends::kCounts);
  }
  for (size_t i = 0; i < std::size(kRunSums); ++i) {
    sums_.emplace_back(
        *metrics->run_sums[i], labels_,
        kRunSums[i].is_count ? Addends::kCounts : Addends::kNumbers);
  }
  for (auto* family : metrics->run_gauges) {
    gauges_.emplace_back(*family, labels_);
  }
}

void RunSeries::Count(const PublishedBatch& batch) {
  const PublishedSums& sums = batch.sums;
  const std::vector<std::string>& rule_names = batch.rule_names;
  for (size_t i = 0; i < counters_.size(); ++i) {
    counters_[i].Add(Amount(kRunCounters[i], sums));
  }
  for (size_t i = 0; i < sums_.size(); ++i) {
    const RunSum& sum = kRunSums[i];
    if (IsMeasured(sum.needs, {.batch = &batch})) sums_[i].Add(sum.of(sums));
  }
  ObserveLogRatios(sums.drift, &token_log_ratio_, &sequence_log_ratio_);
  for (size_t i = 0; i < rule_names.size() && i < std::size(sums.rules); ++i) {
    Dropped& dropped = DroppedBy(rule_names[i]);
    dropped.tokens.Add(static_cast<double>(sums.rules[i].dropped_tokens));
    dropped.sequences.Add(static_cast<double>(sums.rules[i].dropped_sequences));
  }
  staleness_.Count(sums.staleness);
}

void RunSeries::HideGaugesBefore(TimedGauge::Time oldest) {
  for (TimedGauge& gauge : gauges_) gauge.HideIfBefore(oldest);
  staleness_.HideGaugesBefore(oldest);
}

void RunSeries::Show(const ShownBatch& shown, const RunDrift& drift,
                     TimedGauge::Time now) {
  for (size_t i = 0; i < gauges_.size(); ++i) {
    const DriftGauge& gauge = kDriftGauges[i];
    if (IsMeasured(gauge.needs, shown)) {
      gauges_[i].Set(drift.*gauge.field, now);
    }
  }
  staleness_.Show(shown.batch->sums.staleness, now);
}

RunSeries::Dropped& RunSeries::DroppedBy(const std::string& rule) {
  const bool known = dropped_.contains(rule) || dropped_.size() < kMaxRuleNames;
  const std::string name = known ? rule : "other";
  const auto found = dropped_.find(name);
  if (found != dropped_.end()) return found->second;
  prometheus::Labels labels = labels_;
  labels.emplace("rule", name);
  return dropped_
      .emplace(std::piecewise_construct, std::forward_as_tuple(name),
               std::forward_as_tuple(metrics_, labels))
      .first->second;
}

std::optional<RunDrift> Measure(const ShownBatch& shown) {
  const PublishedSums& sums = shown.batch->sums;
  if (sums.tokens == 0 || sums.nonempty_sequences == 0) return std::nullopt;
  RunDrift drift{};
  static_cast<kernels::DriftMeans&>(drift) = kernels::MeansOf(sums);
  static_cast<kernels::LossSummary&>(drift) = kernels::SummarizeLoss(sums);
  drift.policy_version = static_cast<double>(shown.policy_version.value_or(0));
  drift.step = static_cast<double>(shown.step.value_or(0));
  drift.step_parts = static_cast<double>(shown.parts);
  drift.step_tokens = static_cast<double>(sums.tokens);
  drift.kept_tokens =
      static_cast<double>(sums.kept_tokens) / static_cast<double>(sums.tokens);
  drift.outside = drift.clipped_high + drift.clipped_low;
  drift.kept_effective_sample_size = kernels::SampleShare(
      sums.weight.kept_weight, sums.weight.kept_weight_squared, sums.tokens);
  drift.loss = sums.loss.total;
  drift.policy_loss = sums.loss.policy;
  drift.kl_penalty = sums.loss.kl_penalty;
  drift.loss_kl = sums.loss.kl / static_cast<double>(sums.loss.kl_tokens);
  return drift;
}

bool IsMeasured(Needs needs, const ShownBatch& shown) {
  switch (needs) {
    case Needs::kTokens:
      return true;
    case Needs::kWeight:
      return shown.batch->has_weight;
    case Needs::kKeptWeight:
      return shown.batch->has_kept_weight;
    case Needs::kLoss:
      return shown.batch->has_loss;
    case Needs::kKlPenalty:
      return shown.batch->has_kl_penalty;
    case Needs::kPolicyVersion:
      return shown.policy_version.has_value();
    case Needs::kStep:
      return shown.step.has_value();
  }
  return false;
}

double Amount(const BatchCounter& counter, const PublishedSums& sums) {
  if (counter.field == nullptr) return 1;
  return static_cast<double>(sums.*counter.field);
}

void ObserveLogRatios(const PublishedSums::Drift& drift, TotalHistogram* tokens,
                      TotalHistogram* sequences) {
  tokens->Add(drift.histogram,
              BoundedLogRatio(drift.log_ratio, drift.histogram));
  // A row's -log(PPL ratio) is its mean log ratio.
  sequences->Add(
      drift.sequence_histogram,
      BoundedLogRatio(-drift.log_ppl_difference, drift.sequence_histogram));
}

}  // namespace counterweight::server
