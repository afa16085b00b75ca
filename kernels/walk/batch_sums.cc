#include "kernels/walk/batch_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace counterweight::kernels {
namespace {

int64_t Count(double sum) { return static_cast<int64_t>(sum); }

// Columns hold how many are at or below each edge.
void FillHistogram(const double* at_or_below, double total,
                   int64_t (&histogram)[kNumHistogramEdges + 1]) {
  int64_t below = 0;
  for (int e = 0; e < kNumHistogramEdges; ++e) {
    histogram[e] = Count(at_or_below[e]) - below;
    below += histogram[e];
  }
  histogram[kNumHistogramEdges] = Count(total) - below;
}

Extrema TokenRange(const RowRecord& total, int extremum) {
  return {total.token_low[extremum], total.token_high[extremum]};
}

Extrema RowRange(const RowRecord& total, int extremum) {
  return {total.row_low[extremum], total.row_high[extremum]};
}

DriftSums MakeDrift(const Plan& plan, const RowRecord& total) {
  const double* tokens = total.token_sums;
  const double* rows = total.row_sums;
  DriftSums drift{};
  drift.log_ratio = tokens[kColumnLogRatio];
  drift.abs_log_ratio = tokens[kColumnAbs];
  drift.k2 = 0.5 * tokens[kColumnSquared];
  drift.k3 = tokens[kColumnK3];
  drift.excess = tokens[kColumnExcess];
  drift.excess_squared = tokens[kColumnExcessSquared];
  drift.log_ratio_range = TokenRange(total, kExtremumLogRatio);
  FillHistogram(&tokens[kColumnHistogram], tokens[kColumnTokens],
                drift.histogram);
  drift.numerator_log_ppl = rows[kRowNumeratorLogPpl];
  drift.numerator_ppl = rows[kRowNumeratorPpl];
  drift.denominator_log_ppl = rows[kRowDenominatorLogPpl];
  drift.denominator_ppl = rows[kRowDenominatorPpl];
  drift.log_ppl_difference = rows[kRowLogPplDifference];
  drift.abs_log_ppl_difference = rows[kRowAbsLogPplDifference];
  drift.log_ppl_difference_range =
      RowRange(total, kRowExtremumLogPplDifference);
  drift.ppl_ratio_excess = rows[kRowPplRatioExcess];
  drift.chi2_sequence = rows[kRowChi2];
  drift.sequence_log_ratio_range = RowRange(total, kRowExtremumLogRatio);
  FillHistogram(&rows[kRowHistogram], rows[kRowNonempty],
                drift.sequence_histogram);
  if (plan.spec.probability_metrics) {
    drift.probability = {tokens[kColumnAbsDifference],
                         tokens[kColumnSquaredDifference],
                         std::max(total.token_high[kExtremumDifference], 0.0),
                         tokens[kColumnP],
                         tokens[kColumnQ],
                         tokens[kColumnPSquared],
                         tokens[kColumnQSquared],
                         tokens[kColumnPQ]};
  }
  return drift;
}

WeightSums MakeWeight(const Plan& plan, const RowRecord& total) {
  const double* tokens = total.token_sums;
  const double* rows = total.row_sums;
  WeightSums weight{};
  weight.weight = tokens[kColumnWeight];
  weight.weight_squared = tokens[kColumnWeightSquared];
  weight.excess = tokens[kColumnWeightExcess];
  weight.excess_squared = tokens[kColumnWeightExcessSquared];
  weight.range = TokenRange(total, kExtremumWeight);
  weight.raw_log_range = IsSequenceLevel(plan.weight.spec.level)
                             ? RowRange(total, kRowExtremumRawLog)
                             : TokenRange(total, kExtremumRawLog);
  weight.tokens_high = Count(tokens[kColumnWeightHigh]);
  weight.tokens_low = Count(tokens[kColumnWeightLow]);
  weight.tokens_outside =
      weight.tokens_high +
      (plan.weight.spec.lower > 0.0 ? weight.tokens_low : 0);
  if (plan.weight.spec.level == Level::kToken &&
      plan.weight.spec.after_rule > 0) {
    weight.after_rule_tokens = Count(tokens[kColumnWeightSeen]);
    weight.after_rule_tokens_high = Count(tokens[kColumnWeightSeenHigh]);
  }
  weight.sequences_high = Count(rows[kRowWeightHigh]);
  weight.sequences_low = Count(rows[kRowWeightLow]);
  weight.sequences_log_high = Count(rows[kRowWeightLogHigh]);
  weight.sequences_log_low = Count(rows[kRowWeightLogLow]);
  weight.sequence_excess = rows[kRowWeightExcess];
  weight.sequence_excess_squared = rows[kRowWeightExcessSquared];
  weight.sequence_range = RowRange(total, kRowExtremumWeight);
  weight.normalizer = Normalizer(plan, total);
  return weight;
}

RuleSums MakeRule(const Plan& plan, int r, const RowRecord& total) {
  const auto token = [&](RuleColumn c) {
    return total.token_sums[RuleColumnIndex(r, c)];
  };
  const auto row = [&](RowRuleColumn c) {
    return total.row_sums[RowRuleColumnIndex(r, c)];
  };
  RuleSums rule{};
  rule.seen_tokens = Count(token(kRuleSeen));
  rule.seen_sequences = Count(row(kRowRuleSeen));
  rule.tokens_high = Count(token(kRuleHigh));
  rule.tokens_low = Count(token(kRuleLow));
  rule.rows_high = Count(row(kRowRuleHigh));
  rule.rows_low = Count(row(kRowRuleLow));
  rule.sum = token(kRuleSum);
  rule.clamped = token(kRuleClamped);
  rule.clamped_squared = token(kRuleClampedSquared);
  rule.row_range = RowRange(total, kRowExtremumRules + r);
  rule.range = plan.rules[r].is_sequence
                   ? rule.row_range
                   : TokenRange(total, kExtremumRules + r);
  rule.row_sum = row(kRowRuleSum);
  rule.row_squared = row(kRowRuleSquared);
  rule.dropped_tokens = Count(row(kRowRuleDroppedTokens));
  rule.dropped_sequences = Count(row(kRowRuleDroppedRows));
  return rule;
}

// x86 and CUDA make NaNs of different bits; what is infinite cancels to one.
double Canonical(double x) {
  return x == x ? x : std::numeric_limits<double>::quiet_NaN();
}

LossSums MakeLoss(const Plan& plan, const RowRecord& total) {
  const double* tokens = total.loss_sums;
  const double* rows = total.row_loss_sums;
  const auto range = [&](RowLossExtremum e) {
    return Extrema{total.row_loss_low[e], total.row_loss_high[e]};
  };
  LossSums loss{};
  if (!plan.loss.active) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Extrema nothing{kInfinity, -kInfinity};
    loss.ratio_range = nothing;
    loss.row_high_range = nothing;
    loss.row_low_range = nothing;
    loss.padding_ratio_range = nothing;
    return loss;
  }
  loss.ratio_range = range(kRowLossExtremumRatio);
  loss.row_high_range = range(kRowLossExtremumHigh);
  loss.row_low_range = range(kRowLossExtremumLow);
  loss.padding_ratio_range = range(kRowLossExtremumPaddingRatio);
  loss.policy = Canonical(rows[kRowLossPolicy]);
  loss.kl_penalty = Canonical(rows[kRowLossKlPenalty]);
  loss.total = loss.policy;
  if (plan.loss.has_kl) {
    loss.total += plan.loss.spec.kl.coefficient * loss.kl_penalty;
  }
  loss.total = Canonical(loss.total);
  loss.kl = Canonical(tokens[kLossKl]);
  loss.kl_tokens = Count(tokens[kLossKlTokens]);
  loss.ref_log_ratio = Canonical(tokens[kLossRefLogRatio]);
  loss.padding_kl = Canonical(tokens[kLossPaddingKl]);
  loss.padding_high = Count(tokens[kLossPaddingHigh]);
  loss.padding_low = Count(tokens[kLossPaddingLow]);
  loss.log_ratio = Canonical(tokens[kLossLogRatio]);
  loss.log_ratio_kept = Canonical(tokens[kLossLogRatioKept]);
  loss.abs_log_ratio_kept = Canonical(tokens[kLossAbsKept]);
  loss.safe_log_ratio_kept = Canonical(tokens[kLossSafeKept]);
  loss.ratio = Canonical(tokens[kLossRatio]);
  loss.clipped_ratio = Canonical(tokens[kLossClippedRatio]);
  loss.clipped = Count(tokens[kLossClipped]);
  loss.clipped_kept = Count(tokens[kLossClippedKept]);
  loss.high = Count(tokens[kLossHigh]);
  loss.low = Count(tokens[kLossLow]);
  loss.high_kept = Count(tokens[kLossHighKept]);
  loss.low_kept = Count(tokens[kLossLowKept]);
  loss.capped_kept = Count(tokens[kLossCappedKept]);
  loss.clipped_zero_kept = Count(tokens[kLossClippedZeroKept]);
  loss.row_high = rows[kRowLossHigh];
  loss.row_low = rows[kRowLossLow];
  loss.mixed_rows = Count(rows[kRowLossMixed]);
  loss.phi = rows[kRowLossPhi];
  loss.gradient_squared = Canonical(tokens[kLossGradientSquared]);
  loss.slope = Canonical(tokens[kLossSlope]);
  loss.slope_clipped = Canonical(tokens[kLossSlopeClipped]);
  loss.slope_rejected = Canonical(tokens[kLossSlopeRejected]);
  return loss;
}

}  // namespace

double Normalizer(const Plan& plan, const RowRecord& total) {
  const WeightSpec& spec = plan.weight.spec;
  if (!spec.normalize) return 1.0;
  if (spec.given_mean > 0.0) return spec.given_mean;
  const bool by_row = IsSequenceLevel(spec.level);
  const double count =
      by_row ? total.row_sums[kRowNonempty] : total.token_sums[kColumnTokens];
  if (!(count > 0.0)) return 1.0;
  const double direct =
      by_row ? total.row_sums[kRowWeightMean] : total.token_sums[kColumnWeight];
  const double excess = by_row ? total.row_sums[kRowWeightExcess]
                               : total.token_sums[kColumnWeightExcess];
  // Near 1 the sum of excesses is the accurate one, near 0 that of weights.
  const double mean =
      direct < 0.5 * count ? direct / count : 1.0 + excess / count;
  constexpr double kSmallestMean = 1e-8;  // verl's, see WeightSpec::normalize
  return mean > kSmallestMean && std::isfinite(mean) ? mean : 1.0;
}

BatchSums MakeBatchSums(const Plan& plan, const Batch& batch,
                        const RowRecord& total) {
  BatchSums sums{};
  sums.num_sequences = batch.num_sequences;
  sums.positions =
      batch.num_sequences > 0 ? batch.offsets[batch.num_sequences] : 0;
  sums.nonempty_sequences = Count(total.row_sums[kRowNonempty]);
  sums.tokens = Count(total.token_sums[kColumnTokens]);
  sums.kept_tokens = Count(total.token_sums[kColumnKept]);
  sums.kept_sequences = Count(total.row_sums[kRowKept]);
  sums.touched_sequences = Count(total.row_sums[kRowTouched]);
  sums.zero_weight_tokens = Count(total.token_sums[kColumnZeroWeight]);
  sums.non_finite_tokens = Count(total.token_sums[kColumnNonFinite]);
  sums.drift = MakeDrift(plan, total);
  sums.weight = MakeWeight(plan, total);
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    sums.rules[r] = MakeRule(plan, r, total);
  }
  sums.loss = MakeLoss(plan, total);
  return sums;
}

CorrectResult MakeResult(const Plan& plan, const Batch& batch,
                         const RowRecord& total) {
  CorrectResult result;
  if (plan.spec.non_finite == NonFinitePolicy::kReject &&
      total.first_bad != kNoBadToken) {
    const int64_t position = total.first_bad / kBadTokenCodes;
    const int64_t* row =
        std::upper_bound(batch.offsets, batch.offsets + batch.num_sequences + 1,
                         position) -
        1;
    result.status = CorrectStatus::kNonFinite;
    result.non_finite.role =
        static_cast<InputRole>(total.first_bad % kBadTokenCodes / 2);
    result.non_finite.input = total.first_bad % 2 == 0;
    result.non_finite.sequence = row - batch.offsets;
    result.non_finite.token = position - *row;
    return result;
  }
  result.sums = MakeBatchSums(plan, batch, total);
  return result;
}

}  // namespace counterweight::kernels
