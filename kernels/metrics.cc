#include "kernels/metrics.h"

#include <algorithm>
#include <cmath>

#include "kernels/averages.h"
#include "kernels/loss_metrics.h"

namespace counterweight::kernels {
namespace {

using MetricMap = std::map<std::string, double>;

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
              MetricMap* metrics) {
  const DriftSums& drift = sums.drift;
  MetricMap& m = *metrics;
  m["kl"] = summary.kl;
  m["k2"] = Mean(drift.k2, sums.tokens);
  m["k3"] = summary.k3;
  m["chi2_token"] = summary.chi2_token;
  m["chi2_sequence"] = summary.chi2_sequence;
  m["log_ratio_mean"] = Mean(drift.log_ratio, sums.tokens);
  m["log_ratio_abs_mean"] = Mean(drift.abs_log_ratio, sums.tokens);
  m["log_ratio_std"] = summary.log_ratio_std;
  m["log_ratio_min"] = drift.log_ratio_range.min;
  m["log_ratio_max"] = drift.log_ratio_range.max;
  m["sequence_log_ratio_min"] = drift.sequence_log_ratio_range.min;
  m["sequence_log_ratio_max"] = drift.sequence_log_ratio_range.max;
  m["ppl_ratio"] = summary.ppl_ratio;
  m["log_ppl_difference_mean"] =
      Mean(drift.log_ppl_difference, sums.nonempty_sequences);
  m["log_ppl_difference_abs_mean"] =
      Mean(drift.abs_log_ppl_difference, sums.nonempty_sequences);
  m["numerator_ppl"] = Mean(drift.numerator_ppl, sums.nonempty_sequences);
  m["denominator_ppl"] = Mean(drift.denominator_ppl, sums.nonempty_sequences);
}

void AddWeight(const CorrectionSpec& spec, const BatchSums& sums,
               const DriftSummary& summary, MetricMap* metrics) {
  if (spec.weight.level == Level::kNone) return;
  const WeightSums& weight = sums.weight;
  MetricMap& m = *metrics;
  m["weight_mean"] = summary.weight_mean;
  m["weight_std"] = summary.weight_std;
  m["weight_min"] = weight.range.min;
  m["weight_max"] = summary.weight_max;
  m["effective_sample_size"] = summary.effective_sample_size;
  m["weight_clipped_high_fraction"] = summary.clipped_high;
  m["weight_clipped_low_fraction"] = summary.clipped_low;
  m["weight_zero_fraction"] = Fraction(sums.zero_weight_tokens, sums.tokens);
  m["weight_normalizer"] = weight.normalizer;
}

void AddRule(const std::string& name, const RuleSums& rule,
             const BatchSums& sums, MetricMap* metrics) {
  const std::string prefix = "rules/" + name + "/";
  MetricMap& m = *metrics;
  m[prefix + "mean"] = Mean(rule.sum, rule.seen_tokens);
  m[prefix + "min"] = rule.range.min;
  m[prefix + "max"] = rule.range.max;
  m[prefix + "sequence_mean"] = Mean(rule.row_sum, rule.seen_sequences);
  m[prefix + "high_fraction"] = Fraction(rule.tokens_high, rule.seen_tokens);
  m[prefix + "low_fraction"] = Fraction(rule.tokens_low, rule.seen_tokens);
  m[prefix + "dropped_token_fraction"] =
      Fraction(rule.dropped_tokens, sums.tokens);
  m[prefix + "dropped_sequence_fraction"] =
      Fraction(rule.dropped_sequences, sums.nonempty_sequences);
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

std::map<std::string, double> Metrics(
    const CorrectionSpec& spec, const std::vector<std::string>& rule_names,
    const BatchSums& sums) {
  const DriftSummary summary = Summarize(sums);
  MetricMap metrics;
  metrics["tokens"] = static_cast<double>(sums.tokens);
  metrics["sequences"] = static_cast<double>(sums.nonempty_sequences);
  metrics["kept_token_fraction"] = Fraction(sums.kept_tokens, sums.tokens);
  metrics["kept_sequence_fraction"] =
      Fraction(sums.kept_sequences, sums.nonempty_sequences);
  metrics["touched_sequence_fraction"] =
      Fraction(sums.touched_sequences, sums.nonempty_sequences);
  metrics["non_finite_tokens"] = static_cast<double>(sums.non_finite_tokens);
  metrics["positive_log_probs"] = static_cast<double>(sums.positive_log_probs);
  AddDrift(sums, summary, &metrics);
  AddWeight(spec, sums, summary, &metrics);
  for (int r = 0; r < spec.num_rules; ++r) {
    AddRule(rule_names[static_cast<size_t>(r)], sums.rules[r], sums, &metrics);
  }
  AddLossMetrics(spec, sums, &metrics);
  return metrics;
}

}  // namespace counterweight::kernels
