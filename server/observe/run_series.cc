#include "server/observe/run_series.h"

#include <iterator>
#include <tuple>
#include <utility>

namespace counterweight::server {

RunSeries::RunSeries(DriftMetrics* metrics, const std::string& run)
    : metrics_(metrics),
      labels_({{"run", run}}),
      batches_(metrics->run_batches, labels_),
      tokens_(metrics->run_tokens, labels_),
      sequences_(metrics->run_sequences, labels_),
      non_finite_tokens_(metrics->run_non_finite_tokens, labels_),
      token_log_ratio_(metrics->run_token_log_ratio, labels_),
      sequence_log_ratio_(metrics->run_sequence_log_ratio, labels_),
      kl_(metrics->kl, labels_),
      k3_(metrics->k3, labels_),
      chi2_token_(metrics->chi2_token, labels_),
      chi2_sequence_(metrics->chi2_sequence, labels_),
      ppl_ratio_(metrics->ppl_ratio, labels_),
      kept_token_ratio_(metrics->kept_token_ratio, labels_),
      effective_sample_size_(metrics->effective_sample_size, labels_),
      weight_mean_(metrics->weight_mean, labels_),
      weight_max_(metrics->weight_max, labels_),
      clipped_high_(metrics->clipped_high, labels_),
      clipped_low_(metrics->clipped_low, labels_),
      outside_(metrics->outside, labels_) {}

void RunSeries::Publish(const kernels::BatchSums& sums, bool has_weight,
                        const std::vector<std::string>& rule_names) {
  batches_.Get().Increment();
  tokens_.Get().Increment(static_cast<double>(sums.tokens));
  sequences_.Get().Increment(static_cast<double>(sums.num_sequences));
  non_finite_tokens_.Get().Increment(
      static_cast<double>(sums.non_finite_tokens));
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
  const kernels::DriftSummary summary = kernels::Summarize(sums);
  ShowDrift(sums, summary);
  if (has_weight) ShowWeights(summary);
}

void RunSeries::ShowDrift(const kernels::BatchSums& sums,
                          const kernels::DriftSummary& summary) {
  kl_.Get().Set(summary.kl);
  k3_.Get().Set(summary.k3);
  chi2_token_.Get().Set(summary.chi2_token);
  chi2_sequence_.Get().Set(summary.chi2_sequence);
  ppl_ratio_.Get().Set(summary.ppl_ratio);
  kept_token_ratio_.Get().Set(static_cast<double>(sums.kept_tokens) /
                              static_cast<double>(sums.tokens));
}

void RunSeries::ShowWeights(const kernels::DriftSummary& summary) {
  effective_sample_size_.Get().Set(summary.effective_sample_size);
  weight_mean_.Get().Set(summary.weight_mean);
  weight_max_.Get().Set(summary.weight_max);
  clipped_high_.Get().Set(summary.clipped_high);
  clipped_low_.Get().Set(summary.clipped_low);
  outside_.Get().Set(summary.clipped_high + summary.clipped_low);
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
