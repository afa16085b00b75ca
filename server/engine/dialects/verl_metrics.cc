#include "server/engine/dialects/verl_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/metrics.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Bound;
using kernels::CorrectionSpec;
using kernels::Estimator;
using kernels::Extrema;
using kernels::IsSequenceLevel;
using kernels::kSafetyClamp;
using kernels::PeerCorrectionSums;
using kernels::PeerRuleSums;
using kernels::RejectionRule;
using kernels::RuleSums;
using kernels::WeightSpec;
using kernels::WeightSums;

// The number that verl adds to denominators.
constexpr double kEpsilon = 1e-8;
double Fraction(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Square root of a variance that rounding may have made negative.
double Root(double variance) { return std::sqrt(std::max(variance, 0.0)); }

// verl's std over `count` tokens, 0 for a single one: sqrt(E[y^2] - E[y]^2),
// where E divides by count + kEpsilon. With f = count / (count + kEpsilon) that
// is f (variance + (1 - f) mean^2): more than 0 for equal values.
double TokenDeviation(double variance, double mean, int64_t count) {
  if (count <= 1) return 0.0;
  const double padded = static_cast<double>(count) + kEpsilon;
  const double f = static_cast<double>(count) / padded;
  return Root(f * (std::max(variance, 0.0) + kEpsilon / padded * mean * mean));
}

// torch.std with ddof = 1 of `count` numbers, 0 for a single one as verl has
// it.
double SampleDeviation(double sum, double sum_of_squares, double count) {
  if (count <= 1) return 0.0;
  return Root((sum_of_squares - sum * sum / count) / (count - 1));
}

// Returns the extrema of `range` and of `rows` rows with `value`.
Extrema Including(Extrema range, double value, int64_t rows) {
  if (rows == 0) return range;
  return {std::min(range.min, value), std::max(range.max, value)};
}

int64_t EmptyRows(const BatchSums& sums) {
  return sums.num_sequences - sums.nonempty_sequences;
}

double LargestMagnitude(Extrema range) {
  return std::max(std::abs(range.min), std::abs(range.max));
}

// Moments of the bounded weights; the variance divides by the number of tokens.
struct Moments {
  double mean;
  double mean_square;
  double variance;
};

// Near one the sums of w - 1 are accurate, near zero those of w.
Moments WeightMoments(const WeightSums& weight, int64_t count) {
  const auto tokens = static_cast<double>(count);
  const double variance = kernels::WeightVariance(weight, count);
  if (weight.excess_squared < weight.weight_squared) {
    const double mean = weight.excess / tokens;
    const double square = weight.excess_squared / tokens;
    return {1.0 + mean, 1.0 + 2.0 * mean + square, variance};
  }
  const double mean = weight.weight / tokens;
  const double square = weight.weight_squared / tokens;
  return {mean, square, variance};
}

// The lower bound of a fraction: the interval's, or 1 / upper where it has
// none.
double EffectiveLower(const WeightSpec& weight) {
  return weight.lower > 0.0 ? weight.lower : 1.0 / weight.upper;
}

// Extrema and fractions of the raw ratio. Sequence level: over all rows, an
// empty one with log ratio 0; the maximum is clamped like the weight, the
// minimum not.
void AddRatioMetrics(const WeightSpec& spec, const BatchSums& sums,
                     const std::string& prefix, MetricMap* metrics) {
  const WeightSums& weight = sums.weight;
  const PeerCorrectionSums& peers = sums.peers.correction;
  double max = weight.range.max;
  double min = weight.range.min;
  double high = Fraction(weight.tokens_high, sums.tokens);
  double low = Fraction(weight.tokens_low, sums.tokens);
  if (IsSequenceLevel(spec.level)) {
    const int64_t empty = EmptyRows(sums);
    const Extrema range = Including(peers.sequence_log_range, 0.0, empty);
    max = std::exp(std::min(range.max, kSafetyClamp));
    min = std::exp(range.min);
    const int64_t empty_high = std::log(spec.upper) < 0.0 ? empty : 0;
    const int64_t empty_low = std::log(EffectiveLower(spec)) > 0.0 ? empty : 0;
    high = Fraction(weight.sequences_log_high + empty_high, sums.num_sequences);
    low = Fraction(peers.sequences_log_low + empty_low, sums.num_sequences);
  }
  (*metrics)[prefix + "max"] = max;
  (*metrics)[prefix + "min"] = min;
  (*metrics)[prefix + "ratio_fraction_high"] = high;
  (*metrics)[prefix + "ratio_fraction_low"] = low;
}

// Row means of the weight, over all rows: an empty one has mean 0.
void AddRowMeanMetrics(const WeightSpec& spec, const BatchSums& sums,
                       const std::string& prefix, MetricMap* metrics) {
  const WeightSums& weight = sums.weight;
  const PeerCorrectionSums& peers = sums.peers.correction;
  const int64_t empty = EmptyRows(sums);
  const auto rows = static_cast<double>(sums.num_sequences);
  // Relative to 1, an empty row's mean is -1.
  const double excess = weight.sequence_excess - static_cast<double>(empty);
  const double squared =
      peers.sequence_excess_squared + static_cast<double>(empty);
  const Extrema range = Including(weight.sequence_range, 0.0, empty);
  const int64_t empty_low = EffectiveLower(spec) > 0.0 ? empty : 0;
  (*metrics)[prefix + "seq_mean"] = 1.0 + excess / rows;
  (*metrics)[prefix + "seq_std"] = SampleDeviation(excess, squared, rows);
  (*metrics)[prefix + "seq_max"] = range.max;
  (*metrics)[prefix + "seq_min"] = range.min;
  (*metrics)[prefix + "seq_max_deviation"] =
      LargestMagnitude({range.min - 1.0, range.max - 1.0});
  (*metrics)[prefix + "seq_fraction_high"] =
      Fraction(peers.sequences_high, sums.num_sequences);
  (*metrics)[prefix + "seq_fraction_low"] =
      Fraction(peers.sequences_low + empty_low, sums.num_sequences);
}

// A rule's sums in verl's direction: k1 is minus the log ratio, which swaps the
// ends of everything.
struct VerlRuleSums {
  RuleSums own;
  PeerRuleSums peers;
};

VerlRuleSums InVerlDirection(const RejectionRule& rule, VerlRuleSums both) {
  if (rule.estimator != Estimator::kRatio) return both;
  RuleSums& sums = both.own;
  PeerRuleSums& peers = both.peers;
  std::swap(sums.tokens_high, sums.tokens_low);
  std::swap(sums.rows_high, sums.rows_low);
  // Subtracts from zero, so that the result is never -0.
  sums.sum = 0.0 - sums.sum;
  peers.clamped = 0.0 - peers.clamped;
  sums.row_sum = 0.0 - sums.row_sum;
  sums.range = {0.0 - sums.range.max, 0.0 - sums.range.min};
  peers.row_range = {0.0 - peers.row_range.max, 0.0 - peers.row_range.min};
  return both;
}

void AddOneRule(const RejectionRule& rule, const VerlRuleSums& both,
                const std::string& prefix, MetricMap* metrics) {
  const RuleSums& sums = both.own;
  const PeerRuleSums& peers = both.peers;
  const bool is_k1 = rule.estimator == Estimator::kRatio;
  const bool per_row = IsSequenceRule(rule.aggregation);
  const auto tokens = static_cast<double>(sums.seen_tokens);
  const auto rows = static_cast<double>(sums.seen_sequences);
  const double rows_high = Fraction(sums.rows_high, sums.seen_sequences);
  const double rows_low = Fraction(sums.rows_low, sums.seen_sequences);
  const double clamped = peers.clamped / tokens;
  const double clamped_square = peers.clamped_squared / tokens;

  (*metrics)[prefix + "mean"] = sums.sum / tokens;
  (*metrics)[prefix + "max"] = sums.range.max;
  (*metrics)[prefix + "min"] = sums.range.min;
  (*metrics)[prefix + "fraction_high"] =
      per_row ? rows_high : Fraction(sums.tokens_high, sums.seen_tokens);
  // k2 and k3 have no lower bound.
  (*metrics)[prefix + "fraction_low"] =
      !is_k1    ? 0.0
      : per_row ? rows_low
                : Fraction(sums.tokens_low, sums.seen_tokens);
  (*metrics)[prefix + "std"] = TokenDeviation(
      clamped_square - clamped * clamped, clamped, sums.seen_tokens);
  (*metrics)[prefix + "seq_mean"] = sums.row_sum / rows;
  (*metrics)[prefix + "seq_std"] =
      SampleDeviation(sums.row_sum, peers.row_squared, rows);
  (*metrics)[prefix + "seq_max"] = peers.row_range.max;
  (*metrics)[prefix + "seq_min"] = peers.row_range.min;
  (*metrics)[prefix + "seq_max_deviation"] = LargestMagnitude(peers.row_range);
  (*metrics)[prefix + "seq_fraction_high"] = rows_high;
  if (is_k1) (*metrics)[prefix + "seq_fraction_low"] = rows_low;
  (*metrics)[prefix + "masked_fraction"] =
      Fraction(sums.dropped_tokens, sums.seen_tokens);
  (*metrics)[prefix + "seq_masked_fraction"] =
      Fraction(sums.dropped_sequences, sums.seen_sequences);
}

}  // namespace

void AddVerlDriftMetrics(const BatchSums& sums, MetricMap* metrics) {
  const kernels::DriftSums& drift = sums.drift;
  const PeerCorrectionSums& peers = sums.peers.correction;
  const auto tokens = static_cast<double>(sums.tokens);
  const auto rows = static_cast<double>(sums.num_sequences);
  const int64_t empty_rows = EmptyRows(sums);
  const auto empty = static_cast<double>(empty_rows);
  const Extrema difference =
      Including(peers.log_ppl_difference_range, 0.0, empty_rows);
  const std::string prefix = "rollout_corr/";
  (*metrics)[prefix + "training_ppl"] = (drift.numerator_ppl + empty) / rows;
  (*metrics)[prefix + "training_log_ppl"] = peers.numerator_log_ppl / rows;
  (*metrics)[prefix + "kl"] = 0.0 - drift.log_ratio / tokens;
  (*metrics)[prefix + "k3_kl"] = drift.k3 / tokens;
  (*metrics)[prefix + "rollout_ppl"] = (drift.denominator_ppl + empty) / rows;
  (*metrics)[prefix + "rollout_log_ppl"] = peers.denominator_log_ppl / rows;
  (*metrics)[prefix + "log_ppl_diff"] = drift.log_ppl_difference / rows;
  (*metrics)[prefix + "log_ppl_abs_diff"] = drift.abs_log_ppl_difference / rows;
  (*metrics)[prefix + "log_ppl_diff_max"] = difference.max;
  (*metrics)[prefix + "log_ppl_diff_min"] = difference.min;
  (*metrics)[prefix + "ppl_ratio"] = 1.0 + drift.ppl_ratio_excess / rows;
  // E[exp(l)^2] - 1 in terms of u = exp(l) - 1.
  (*metrics)[prefix + "chi2_token"] =
      (2.0 * drift.excess + drift.excess_squared) / tokens;
  (*metrics)[prefix + "chi2_seq"] = drift.chi2_sequence / rows;
}

void AddVerlProbabilityMetrics(const BatchSums& sums, MetricMap* metrics) {
  const kernels::ProbabilitySums& probability =
      sums.peers.correction.probability;
  const auto tokens = static_cast<double>(sums.tokens);
  const double covariance =
      probability.p_q - probability.p * probability.q / tokens;
  const double variance_p =
      probability.p_squared - probability.p * probability.p / tokens;
  const double variance_q =
      probability.q_squared - probability.q * probability.q / tokens;
  const bool varies = sums.tokens > 1 && variance_p > 0.0 && variance_q > 0.0;
  const std::string prefix = "training/rollout_probs_diff_";
  (*metrics)[prefix + "valid"] = 1.0;
  (*metrics)[prefix + "max"] = probability.max_difference;
  (*metrics)[prefix + "mean"] = probability.abs_difference / tokens;
  (*metrics)[prefix + "std"] =
      sums.tokens > 1 ? SampleDeviation(probability.abs_difference,
                                        probability.squared_difference, tokens)
                      : kNan;
  // torch.corrcoef clips too.
  (*metrics)["training/rollout_actor_probs_pearson_corr"] =
      varies ? std::clamp(covariance / std::sqrt(variance_p * variance_q), -1.0,
                          1.0)
             : kNan;
}

void AddVerlWeightMetrics(const WeightSpec& spec, const BatchSums& sums,
                          MetricMap* metrics) {
  const std::string prefix = "rollout_corr/rollout_is_";
  const Moments moments = WeightMoments(sums.weight, sums.tokens);
  (*metrics)[prefix + "mean"] = moments.mean;
  (*metrics)[prefix + "std"] =
      TokenDeviation(moments.variance, moments.mean, sums.tokens);
  // 1 / mean(z^2) with z = w / (mean + epsilon): above 1 for tiny weights.
  const double denominator = moments.mean + kEpsilon;
  (*metrics)[prefix + "eff_sample_size"] =
      denominator * denominator / moments.mean_square;
  AddRatioMetrics(spec, sums, prefix, metrics);
  AddRowMeanMetrics(spec, sums, prefix, metrics);
  if (spec.bound == Bound::kMask) {
    (*metrics)[prefix + "oob_ratio"] =
        Fraction(sums.weight.tokens_outside, sums.tokens);
  }
  if (spec.normalize) {
    (*metrics)[prefix + "batch_norm_factor"] = sums.weight.normalizer;
  }
}

void AddVerlRuleMetrics(const CorrectionSpec& spec,
                        std::span<const std::string> names,
                        const BatchSums& sums, MetricMap* metrics) {
  if (spec.num_rules == 0) return;
  const std::string prefix = "rollout_corr/rollout_rs_";
  for (int i = 0; i < spec.num_rules; ++i) {
    const VerlRuleSums rule = {sums.rules[i], sums.peers.correction.rules[i]};
    AddOneRule(spec.rules[i], InVerlDirection(spec.rules[i], rule),
               prefix + names[static_cast<size_t>(i)] + "_", metrics);
  }
  (*metrics)[prefix + "masked_fraction"] =
      Fraction(sums.tokens - sums.kept_tokens, sums.tokens);
  // The total covers all rows, each option's own fraction the non-empty ones.
  (*metrics)[prefix + "seq_masked_fraction"] =
      Fraction(sums.touched_sequences, sums.num_sequences);
}

}  // namespace counterweight::server
