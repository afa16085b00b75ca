#include "kernels/walk/batch_sums.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/walk/column_table.h"

namespace counterweight::kernels {
namespace {

int64_t Count(double sum) { return static_cast<int64_t>(sum); }

// x86 and CUDA make NaNs of different bits; what is infinite cancels to one.
// Which zero is the least of two depends on their order.
double Canonical(double x) {
  return x == x ? x + 0.0 : std::numeric_limits<double>::quiet_NaN();
}

template <size_t kSize>
void MakeCanonical(int count, double (&values)[kSize]) {
  for (int i = 0; i < count; ++i) values[i] = Canonical(values[i]);
}

// Changes the sums that the plan has; no other is read.
RowRecord Canonical(const Plan& plan, RowRecord total) {
  MakeCanonical(plan.token_columns, total.token_sums);
  MakeCanonical(plan.row_columns, total.row_sums);
  MakeCanonical(plan.token_extrema, total.token_low);
  MakeCanonical(plan.token_extrema, total.token_high);
  MakeCanonical(plan.row_extrema, total.row_low);
  MakeCanonical(plan.row_extrema, total.row_high);
  if (!plan.loss.active) return total;
  MakeCanonical(kNumLossColumns, total.loss_sums);
  MakeCanonical(kNumRowLossColumns, total.row_loss_sums);
  MakeCanonical(kNumRowLossExtrema, total.row_loss_low);
  MakeCanonical(kNumRowLossExtrema, total.row_loss_high);
  return total;
}

// The fields that are columns themselves.
void FillColumns(const Plan& plan, const RowRecord& total, BatchSums& sums) {
  for (int c = 0; c < kNumColumns; ++c) {
    const ColumnInfo& column = kColumnTable.columns[c];
    const int rule = RuleOfColumn(c);
    const bool is_loss = c >= kColumnLoss;
    if (column.field.offset == kNoField.offset || rule >= plan.spec.num_rules ||
        (is_loss && !plan.loss.active)) {
      continue;
    }
    char* const field = reinterpret_cast<char*>(&sums) + column.field.offset +
                        std::max(rule, 0) * column.field.stride;
    const double sum =
        is_loss ? total.loss_sums[c - kColumnLoss] : total.token_sums[c];
    if (column.adds == Adds::kCount) {
      const int64_t count = Count(sum);
      std::memcpy(field, &count, sizeof(count));
    } else {
      std::memcpy(field, &sum, sizeof(sum));
    }
  }
}

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

void FillDrift(const RowRecord& total, DriftSums& drift) {
  const double* tokens = total.token_sums;
  const double* rows = total.row_sums;
  drift.k2 = 0.5 * tokens[kColumnSquared];
  drift.log_ratio_range = TokenRange(total, kExtremumLogRatio);
  FillHistogram(&tokens[kColumnHistogram], tokens[kColumnTokens],
                drift.histogram);
  drift.numerator_ppl = rows[kRowNumeratorPpl];
  drift.denominator_ppl = rows[kRowDenominatorPpl];
  drift.log_ppl_difference = rows[kRowLogPplDifference];
  drift.abs_log_ppl_difference = rows[kRowAbsLogPplDifference];
  drift.ppl_ratio_excess = rows[kRowPplRatioExcess];
  drift.chi2_sequence = rows[kRowChi2];
  drift.sequence_log_ratio_range = RowRange(total, kRowExtremumLogRatio);
  FillHistogram(&rows[kRowHistogram], rows[kRowNonempty],
                drift.sequence_histogram);
}

// REQUIRES: FillColumns().
void FillWeight(const Plan& plan, int64_t num_sequences, const RowRecord& total,
                WeightSums& weight) {
  const double* tokens = total.token_sums;
  const double* rows = total.row_sums;
  weight.range = TokenRange(total, kExtremumWeight);
  weight.tokens_outside =
      weight.tokens_high +
      (plan.weight.spec.lower > 0.0 ? weight.tokens_low : 0);
  if (plan.weight.spec.level == Level::kToken &&
      plan.weight.spec.after_rule > 0) {
    weight.after_rule_tokens = Count(tokens[kColumnWeightSeen]);
    weight.after_rule_tokens_high = Count(tokens[kColumnWeightSeenHigh]);
  }
  weight.sequences_log_high = Count(rows[kRowWeightLogHigh]);
  weight.sequence_excess = rows[kRowWeightExcess];
  weight.sequence_range = RowRange(total, kRowExtremumWeight);
  weight.normalizer = Normalizer(plan, num_sequences, total);
  if (plan.spec.num_rules > 0) return;
  weight.kept_weight = weight.weight;
  weight.kept_weight_squared = weight.weight_squared;
}

void FillRule(const Plan& plan, int r, const RowRecord& total, RuleSums& rule) {
  const auto row = [&](RowRuleColumn c) {
    return total.row_sums[RowRuleColumnIndex(r, c)];
  };
  rule.seen_sequences = Count(row(kRowRuleSeen));
  rule.rows_high = Count(row(kRowRuleHigh));
  rule.rows_low = Count(row(kRowRuleLow));
  rule.range = plan.rules[r].is_sequence
                   ? RowRange(total, kRowExtremumRules + r)
                   : TokenRange(total, kExtremumRules + r);
  rule.row_sum = row(kRowRuleSum);
  rule.dropped_tokens = Count(row(kRowRuleDroppedTokens));
  rule.dropped_sequences = Count(row(kRowRuleDroppedRows));
}

Extrema LossRange(const RowRecord& total, RowLossExtremum extremum) {
  return {total.row_loss_low[extremum], total.row_loss_high[extremum]};
}

void FillLoss(const Plan& plan, const RowRecord& total, LossSums& loss) {
  loss.ratio_range = kNoExtrema;
  if (!plan.loss.active) return;
  const double* rows = total.row_loss_sums;
  loss.ratio_range = LossRange(total, kRowLossExtremumRatio);
  loss.policy = rows[kRowLossPolicy];
  loss.kl_penalty = rows[kRowLossKlPenalty];
  loss.total = loss.policy;
  if (plan.loss.has_kl) {
    loss.total += plan.loss.spec.kl.coefficient * loss.kl_penalty;
  }
  loss.total = Canonical(loss.total);
}

// REQUIRES: FillColumns().
void FillPeerCorrection(const Plan& plan, const RowRecord& total,
                        PeerCorrectionSums& peers) {
  peers.log_ppl_difference_range = peers.sequence_log_range = kNoExtrema;
  for (PeerRuleSums& rule : peers.rules) rule.row_range = kNoExtrema;
  if (!plan.spec.peer_sums) return;
  const double* rows = total.row_sums;
  peers.probability.max_difference =
      std::max(total.token_high[kExtremumDifference], 0.0);
  peers.numerator_log_ppl = rows[kRowNumeratorLogPpl];
  peers.denominator_log_ppl = rows[kRowDenominatorLogPpl];
  peers.log_ppl_difference_range =
      RowRange(total, kRowExtremumLogPplDifference);
  peers.sequence_log_range = RowRange(total, kRowExtremumRawLog);
  peers.sequences_log_low = Count(rows[kRowWeightLogLow]);
  peers.sequences_high = Count(rows[kRowWeightHigh]);
  peers.sequences_low = Count(rows[kRowWeightLow]);
  peers.sequence_excess_squared = rows[kRowWeightExcessSquared];
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    peers.rules[r].row_squared = rows[RowRuleColumnIndex(r, kRowRuleSquared)];
    peers.rules[r].row_range = RowRange(total, kRowExtremumRules + r);
  }
}

// REQUIRES: FillColumns().
void FillPeerLoss(const Plan& plan, const RowRecord& total,
                  PeerLossSums& peers) {
  peers.row_high_range = peers.row_low_range = kNoExtrema;
  peers.padding_ratio_range = kNoExtrema;
  if (!plan.loss.active) return;
  peers.padding_ratio_range = LossRange(total, kRowLossExtremumPaddingRatio);
  if (!plan.loss.spec.peer_sums) return;
  const double* rows = total.row_loss_sums;
  peers.row_high = rows[kRowLossHigh];
  peers.row_low = rows[kRowLossLow];
  peers.row_high_range = LossRange(total, kRowLossExtremumHigh);
  peers.row_low_range = LossRange(total, kRowLossExtremumLow);
  peers.mixed_rows = Count(rows[kRowLossMixed]);
  peers.phi = rows[kRowLossPhi];
}

}  // namespace

double Normalizer(const Plan& plan, int64_t num_sequences,
                  const RowRecord& total) {
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
  const double own =
      direct < 0.5 * count ? direct / count : 1.0 + excess / count;
  const double mean = by_row && spec.counts_empty_rows
                          ? own * (count / static_cast<double>(num_sequences))
                          : own;
  constexpr double kSmallestMean = 1e-8;  // verl's, see WeightSpec::normalize
  return mean > kSmallestMean && std::isfinite(mean) ? mean : 1.0;
}

BatchSums MakeBatchSums(const Plan& plan, int64_t num_sequences,
                        const RowRecord& folded) {
  const RowRecord total = Canonical(plan, folded);
  BatchSums sums{};
  sums.num_sequences = num_sequences;
  sums.nonempty_sequences = Count(total.row_sums[kRowNonempty]);
  sums.kept_sequences = Count(total.row_sums[kRowKept]);
  sums.touched_sequences = Count(total.row_sums[kRowTouched]);
  sums.non_finite_tokens = Count(total.token_sums[kColumnNonFinite]);
  sums.positive_log_probs = Count(total.token_sums[kColumnPositive]);
  FillColumns(plan, total, sums);
  FillDrift(total, sums.drift);
  FillWeight(plan, num_sequences, total, sums.weight);
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    FillRule(plan, r, total, sums.rules[r]);
  }
  FillLoss(plan, total, sums.loss);
  FillPeerCorrection(plan, total, sums.peers.correction);
  FillPeerLoss(plan, total, sums.peers.loss);
  return sums;
}

CorrectResult MakeResult(const Plan& plan, const Batch& batch,
                         const RowRecord& total, const PartialBins* partial) {
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
  result.sums = MakeBatchSums(plan, batch.num_sequences, total);
  if (partial != nullptr) {
    result.partial = MakePartialSums(plan, partial->layout, batch.num_sequences,
                                     total, partial->bins.data());
  }
  return result;
}

}  // namespace counterweight::kernels
