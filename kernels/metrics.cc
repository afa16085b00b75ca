#include "kernels/metrics.h"

#include <algorithm>
#include <cmath>

#include "kernels/averages.h"
#include "kernels/loss_metrics.h"

namespace counterweight::kernels {
namespace {

// Keeps metrics by name.
class NamedMetrics final : public MetricSink {
 public:
  NamedMetrics(const std::vector<std::string>& rule_names,
               std::map<std::string, double>* metrics)
      : rule_names_(rule_names), metrics_(metrics) {}

  void BeginRule(int rule) override {
    prefix_ = "rules/" + rule_names_[static_cast<size_t>(rule)] + "/";
  }
  void EndRules() override { prefix_.clear(); }
  void Put(const char* name, double value) override {
    (*metrics_)[prefix_ + name] = value;
  }

 private:
  const std::vector<std::string>& rule_names_;
  std::map<std::string, double>* const metrics_;
  std::string prefix_;
};

// Population variance from sums of x and x^2. Equal numbers leave the rounding
// of their mean otherwise; a range of 0 is also that of sums without a range.
double Variance(double sum, double squared, int64_t count,
                const Extrema& range) {
  const bool is_one = range.min == range.max && std::isfinite(range.min);
  if (is_one && range.min != 0.0) return 0.0;
  const double mean = Mean(sum, count);
  return Mean(squared, count) - mean * mean;
}

// Rounding may leave a variance just below 0.
double Deviation(double variance) {
  return std::isnan(variance) ? variance : std::sqrt(std::max(variance, 0.0));
}

void AddDrift(const BatchSums& sums, const DriftSummary& summary,
              MetricSink* sink) {
  const DriftSums& drift = sums.drift;
  sink->Add("kl", summary.kl);
  sink->Add("k2", Mean(drift.k2, sums.tokens));
  sink->Add("k3", summary.k3);
  sink->Add("chi2_token", summary.chi2_token);
  sink->Add("chi2_sequence", summary.chi2_sequence);
  sink->Add("log_ratio_mean", Mean(drift.log_ratio, sums.tokens));
  sink->Add("log_ratio_abs_mean", Mean(drift.abs_log_ratio, sums.tokens));
  sink->Add("log_ratio_std", summary.log_ratio_std);
  sink->Add("log_ratio_min", drift.log_ratio_range.min);
  sink->Add("log_ratio_max", drift.log_ratio_range.max);
  sink->Add("sequence_log_ratio_min", drift.sequence_log_ratio_range.min);
  sink->Add("sequence_log_ratio_max", drift.sequence_log_ratio_range.max);
  sink->Add("ppl_ratio", summary.ppl_ratio);
  sink->Add("log_ppl_difference_mean",
            Mean(drift.log_ppl_difference, sums.nonempty_sequences));
  sink->Add("log_ppl_difference_abs_mean",
            Mean(drift.abs_log_ppl_difference, sums.nonempty_sequences));
  sink->Add("numerator_ppl",
            Mean(drift.numerator_ppl, sums.nonempty_sequences));
  sink->Add("denominator_ppl",
            Mean(drift.denominator_ppl, sums.nonempty_sequences));
}

void AddWeight(const CorrectionSpec& spec, const BatchSums& sums,
               const DriftSummary& summary, MetricSink* sink) {
  if (spec.weight.level == Level::kNone) return;
  const WeightSums& weight = sums.weight;
  sink->Add("weight_mean", summary.weight_mean);
  sink->Add("weight_std", summary.weight_std);
  sink->Add("weight_min", weight.range.min);
  sink->Add("weight_max", summary.weight_max);
  sink->Add("effective_sample_size", summary.effective_sample_size);
  sink->Add(
      "kept_effective_sample_size",
      SampleShare(weight.kept_weight, weight.kept_weight_squared, sums.tokens));
  sink->Add("weight_clipped_high_fraction", summary.clipped_high);
  sink->Add("weight_clipped_low_fraction", summary.clipped_low);
  sink->Add("weight_zero_fraction",
            Fraction(sums.zero_weight_tokens, sums.tokens));
  sink->Add("weight_normalizer", weight.normalizer);
}

void AddRule(const RuleSums& rule, const BatchSums& sums, MetricSink* sink) {
  sink->Add("mean", Mean(rule.sum, rule.seen_tokens));
  sink->Add("min", rule.range.min);
  sink->Add("max", rule.range.max);
  sink->Add("sequence_mean", Mean(rule.row_sum, rule.seen_sequences));
  sink->Add("high_fraction", Fraction(rule.tokens_high, rule.seen_tokens));
  sink->Add("low_fraction", Fraction(rule.tokens_low, rule.seen_tokens));
  sink->Add("dropped_token_fraction",
            Fraction(rule.dropped_tokens, sums.tokens));
  sink->Add("dropped_sequence_fraction",
            Fraction(rule.dropped_sequences, sums.nonempty_sequences));
}

}  // namespace

double WeightVariance(const WeightSums& weight, int64_t tokens) {
  // Very near 1 the weights, float32, have fewer bits of what they differ by
  // than their distances from 1; elsewhere the squares of these cancel.
  constexpr double kNear = 0x1p-12;
  const bool near = std::abs(Mean(weight.excess, tokens)) < kNear;
  return near ? Variance(weight.excess, weight.excess_squared, tokens,
                         weight.range)
              : Variance(weight.weight, weight.weight_squared, tokens,
                         weight.range);
}

DriftSummary Summarize(const BatchSums& sums) {
  const DriftSums& drift = sums.drift;
  const WeightSums& weight = sums.weight;
  const int64_t n = sums.tokens;
  DriftSummary summary{MeansOf(sums), 0.0, 0.0};
  summary.log_ratio_std = Deviation(
      Variance(drift.log_ratio, 2.0 * drift.k2, n, drift.log_ratio_range));
  summary.weight_std = Deviation(WeightVariance(weight, n));
  return summary;
}

void WriteMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                  MetricSink* sink) {
  const DriftSummary summary = Summarize(sums);
  sink->Add("tokens", static_cast<double>(sums.tokens));
  sink->Add("sequences", static_cast<double>(sums.nonempty_sequences));
  sink->Add("kept_token_fraction", Fraction(sums.kept_tokens, sums.tokens));
  sink->Add("kept_sequence_fraction",
            Fraction(sums.kept_sequences, sums.nonempty_sequences));
  sink->Add("touched_sequence_fraction",
            Fraction(sums.touched_sequences, sums.nonempty_sequences));
  sink->Add("non_finite_tokens", static_cast<double>(sums.non_finite_tokens));
  sink->Add("positive_log_probs", static_cast<double>(sums.positive_log_probs));
  AddDrift(sums, summary, sink);
  AddWeight(spec, sums, summary, sink);
  for (int r = 0; r < spec.num_rules; ++r) {
    sink->BeginRule(r);
    AddRule(sums.rules[r], sums, sink);
  }
  sink->EndRules();
  AddLossMetrics(spec, sums, sink);
}

std::map<std::string, double> Metrics(
    const CorrectionSpec& spec, const std::vector<std::string>& rule_names,
    const BatchSums& sums) {
  std::map<std::string, double> metrics;
  NamedMetrics named(rule_names, &metrics);
  WriteMetrics(spec, sums, &named);
  return metrics;
}

}  // namespace counterweight::kernels
