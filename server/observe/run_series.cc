#include "server/observe/run_series.h"

#include <iterator>
#include <tuple>
#include <utility>

namespace counterweight::server {

RunSeries::RunSeries(DriftMetrics* metrics, const std::string& run)
    : metrics_(metrics),
      labels_({{"run", run}}),
      token_log_ratio_(metrics->run_token_log_ratio, labels_),
      sequence_log_ratio_(metrics->run_sequence_log_ratio, labels_) {
  for (auto* family : metrics->run_counters) {
    counters_.emplace_back(*family, labels_);
  }
  for (auto* family : metrics->run_gauges) {
    gauges_.emplace_back(*family, labels_);
  }
}

void RunSeries::Publish(const kernels::BatchSums& sums, bool has_weight,
                        const std::vector<std::string>& rule_names) {
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
  // Nothing was measured, so what was measured last stands.
  if (sums.tokens == 0 || sums.nonempty_sequences == 0) return;
  ShowDrift(sums, has_weight);
}

void RunSeries::ShowDrift(const kernels::BatchSums& sums, bool has_weight) {
  RunDrift drift{kernels::Summarize(sums), /*kept_tokens=*/0, /*outside=*/0};
  drift.kept_tokens =
      static_cast<double>(sums.kept_tokens) / static_cast<double>(sums.tokens);
  drift.outside = drift.clipped_high + drift.clipped_low;
  for (size_t i = 0; i < gauges_.size(); ++i) {
    const DriftGauge& gauge = kDriftGauges[i];
    if (gauge.needs_weights && !has_weight) continue;
    gauges_[i].Get().Set(drift.*gauge.field);
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

double Amount(const BatchCounter& counter, const kernels::BatchSums& sums) {
  if (counter.field == nullptr) return 1;
  return static_cast<double>(sums.*counter.field);
}

void ObserveLogRatios(const kernels::DriftSums& drift, Histogram* tokens,
                      Histogram* sequences) {
  tokens->ObserveMultiple(
      {std::begin(drift.histogram), std::end(drift.histogram)},
      drift.log_ratio);
  // Of a row, -log(PPL ratio) is the mean log ratio.
  sequences->ObserveMultiple({std::begin(drift.sequence_histogram),
                              std::end(drift.sequence_histogram)},
                             -drift.log_ppl_difference);
}

}  // namespace counterweight::server
