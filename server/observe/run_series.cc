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
      token_log_ratio_(metrics->run_token_log_ratio, labels_),
      sequence_log_ratio_(metrics->run_sequence_log_ratio, labels_),
      staleness_(metrics, labels_) {
  for (auto* family : metrics->run_counters) {
    counters_.emplace_back(*family, labels_);
  }
  for (auto* family : metrics->run_gauges) {
    gauges_.emplace_back(*family, labels_);
  }
}

void RunSeries::Publish(const DriftReport& report,
                        const std::optional<RunDrift>& drift) {
  const kernels::BatchSums& sums = report.batch->sums;
  const std::vector<std::string>& rule_names = report.batch->rule_names;
  for (size_t i = 0; i < counters_.size(); ++i) {
    counters_[i].Get().Increment(Amount(kRunCounters[i], sums));
  }
  ObserveLogRatios(sums.drift, &token_log_ratio_.Get(LogRatioBuckets()),
                   &sequence_log_ratio_.Get(LogRatioBuckets()));
  for (size_t i = 0; i < rule_names.size() && i < std::size(sums.rules); ++i) {
    Dropped& dropped = DroppedBy(rule_names[i]);
    dropped.tokens.Get().Increment(
        static_cast<double>(sums.rules[i].dropped_tokens));
    dropped.sequences.Get().Increment(
        static_cast<double>(sums.rules[i].dropped_sequences));
  }
  staleness_.Publish(sums.staleness);
  if (drift) ShowDrift(report, *drift);
}

void RunSeries::ShowDrift(const DriftReport& report, const RunDrift& drift) {
  for (size_t i = 0; i < gauges_.size(); ++i) {
    const DriftGauge& gauge = kDriftGauges[i];
    if (IsMeasured(gauge.needs, report)) {
      gauges_[i].Get().Set(drift.*gauge.field);
    }
  }
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

std::optional<RunDrift> Measure(const DriftReport& report) {
  const kernels::BatchSums& sums = report.batch->sums;
  if (sums.tokens == 0 || sums.nonempty_sequences == 0) return std::nullopt;
  RunDrift drift{};
  static_cast<kernels::DriftSummary&>(drift) = kernels::Summarize(sums);
  static_cast<kernels::LossSummary&>(drift) = kernels::SummarizeLoss(sums);
  drift.policy_version = static_cast<double>(report.policy_version.value_or(0));
  drift.kept_tokens =
      static_cast<double>(sums.kept_tokens) / static_cast<double>(sums.tokens);
  drift.outside = drift.clipped_high + drift.clipped_low;
  drift.loss = sums.loss.total;
  drift.policy_loss = sums.loss.policy;
  drift.kl_penalty = sums.loss.kl_penalty;
  drift.loss_kl = sums.loss.kl / static_cast<double>(sums.loss.kl_tokens);
  return drift;
}

bool IsMeasured(Needs needs, const DriftReport& report) {
  switch (needs) {
    case Needs::kTokens:
      return true;
    case Needs::kWeight:
      return report.batch->has_weight;
    case Needs::kLoss:
      return report.batch->has_loss;
    case Needs::kKlPenalty:
      return report.batch->has_kl_penalty;
    case Needs::kPolicyVersion:
      return report.policy_version.has_value();
  }
  return false;
}

double Amount(const BatchCounter& counter, const kernels::BatchSums& sums) {
  if (counter.field == nullptr) return 1;
  return static_cast<double>(sums.*counter.field);
}

void ObserveLogRatios(const kernels::DriftSums& drift, Histogram* tokens,
                      Histogram* sequences) {
  tokens->ObserveMultiple(
      {std::begin(drift.histogram), std::end(drift.histogram)},
      drift.log_ratio);
  // A row's -log(PPL ratio) is its mean log ratio.
  sequences->ObserveMultiple({std::begin(drift.sequence_histogram),
                              std::end(drift.sequence_histogram)},
                             -drift.log_ppl_difference);
}

}  // namespace counterweight::server
