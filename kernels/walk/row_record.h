// Partial sums of one finished row. `Segment` and `Row` have the members of
// SegmentRecord and RowRecord.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_RECORD_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_RECORD_H_

#include "kernels/math/exp.h"
#include "kernels/walk/plan.h"
#include "kernels/walk/record.h"
#include "kernels/walk/row_decision.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The sums over rows, without those of the loss.
template <class Row>
COUNTERWEIGHT_HD void clear_row_sums(const Plan& plan, Row& record) {
  for (int c = 0; c < plan.row_columns; ++c) record.row_sums[c] = 0.0;
  for (int e = 0; e < plan.row_extrema; ++e) {
    record.row_low[e] = __builtin_inf();
    record.row_high[e] = -__builtin_inf();
  }
}

// No row at all.
template <class Row>
COUNTERWEIGHT_HD void clear_row(const Plan& plan, Row& record) {
  clear_row_sums(plan, record);
  for (int c = 0; c < plan.token_columns; ++c) record.token_sums[c] = 0.0;
  for (int e = 0; e < plan.token_extrema; ++e) {
    record.token_low[e] = __builtin_inf();
    record.token_high[e] = -__builtin_inf();
  }
  record.first_bad = kNoBadToken;
  if (!plan.loss.active) return;
  clear_row_loss(record);
  for (int c = 0; c < kNumLossColumns; ++c) record.loss_sums[c] = 0.0;
}

template <class Row>
COUNTERWEIGHT_HD void extend(Row& record, RowExtremum e, double x) {
  record.row_low[e] = x;
  record.row_high[e] = x;
}

// Perplexities and their ratio: a_i = mean numerator log-prob, b_i = mean
// denominator one, e_i = b_i - a_i taken from the exact sum of l.
template <class Segment, class Row>
COUNTERWEIGHT_HD void add_drift(const Plan& plan, const Segment& row, double n,
                                Row& out) {
  double* sums = out.row_sums;
  const double log_ratio = row.sums[kColumnLogRatio];
  const double mean = log_ratio / n;
  const double denominator = row.sums[kColumnDenominator] / n;
  const double numerator = denominator + mean;
  const double e = -mean;
  sums[kRowNonempty] = 1.0;
  sums[kRowNumeratorLogPpl] = -numerator;
  sums[kRowNumeratorPpl] = exp64(-numerator);
  sums[kRowDenominatorLogPpl] = -denominator;
  sums[kRowDenominatorPpl] = exp64(-denominator);
  sums[kRowLogPplDifference] = e;
  sums[kRowAbsLogPplDifference] = e < 0.0 ? -e : e;
  sums[kRowPplRatioExcess] = expm1_64(e);
  sums[kRowChi2] = expm1_64(2.0 * clamped64(log_ratio, kSafetyClamp));
  for (int b = 0; b < kNumHistogramEdges; ++b) {
    sums[kRowHistogram + b] =
        mean <= static_cast<double>(plan.histogram_edges[b]) ? 1.0 : 0.0;
  }
  extend(out, kRowExtremumLogPplDifference, e);
  extend(out, kRowExtremumLogRatio, log_ratio);
}

// Row-level weights enter the token columns once per token.
template <class Segment>
COUNTERWEIGHT_HD void spread_row_weight(const WeightPlan& plan, double n,
                                        const RowWeight& weight, Segment& row) {
  row.sums[kColumnWeight] = n * weight.weight;
  row.sums[kColumnWeightSquared] = n * (weight.weight * weight.weight);
  row.sums[kColumnWeightExcess] = n * weight.excess;
  row.sums[kColumnWeightExcessSquared] = n * (weight.excess * weight.excess);
  row.sums[kColumnRawExcess] = n * weight.raw_excess;
  row.sums[kColumnWeightHigh] = weight.raw > plan.spec.upper ? n : 0.0;
  row.sums[kColumnWeightLow] = weight.raw < plan.low_threshold64 ? n : 0.0;
  row.low[kExtremumWeight] = static_cast<float>(weight.weight);
  row.high[kExtremumWeight] = static_cast<float>(weight.weight);
}

template <class Segment, class Row>
COUNTERWEIGHT_HD void add_weight(const Plan& plan, double n, Segment& row,
                                 Row& out) {
  const WeightPlan& weight = plan.weight;
  double* sums = out.row_sums;
  if (weight.spec.level == Level::kNone) return;
  if (IsSequenceLevel(weight.spec.level)) {
    const RowWeight value = row_weight(weight, row);
    spread_row_weight(weight, n, value, row);
    if (static_cast<float>(value.weight) == 0.0f) {
      row.sums[kColumnZeroWeight] = n;
    }
    sums[kRowWeightLogHigh] = value.raw_log > weight.upper_log ? 1.0 : 0.0;
    sums[kRowWeightLogLow] =
        value.raw_log < weight.low_threshold_log ? 1.0 : 0.0;
    extend(out, kRowExtremumRawLog, value.raw_log);
  }
  // Near 1 the sum of excesses is the accurate one, near 0 that of weights.
  const double excess = row.sums[kColumnWeightExcess] / n;
  const double direct = row.sums[kColumnWeight] / n;
  const double mean = direct < 0.5 ? direct : 1.0 + excess;
  const double raw_mean = row.sums[kColumnRawExcess] / n;
  sums[kRowWeightExcess] = excess;
  sums[kRowWeightExcessSquared] = excess * excess;
  sums[kRowWeightMean] = mean;
  sums[kRowWeightHigh] = raw_mean > weight.spec.upper - 1.0 ? 1.0 : 0.0;
  sums[kRowWeightLow] = raw_mean < weight.low_threshold64 - 1.0 ? 1.0 : 0.0;
  extend(out, kRowExtremumWeight, mean);
}

template <class Segment, class Row>
COUNTERWEIGHT_HD void add_rule(const Plan& plan, int r, const RowState& state,
                               Segment& row, Row& out) {
  const RulePlan& rule = plan.rules[r];
  const double seen = row.sums[RuleColumnIndex(r, kRuleSeen)];
  if (!(seen > 0.0)) return;
  const double q = row_statistic(plan, r, row);
  const Sides sides = row_sides(plan, r, row);
  double* sums = out.row_sums;
  sums[RowRuleColumnIndex(r, kRowRuleSeen)] = 1.0;
  sums[RowRuleColumnIndex(r, kRowRuleHigh)] = sides.high ? 1.0 : 0.0;
  sums[RowRuleColumnIndex(r, kRowRuleLow)] = sides.low ? 1.0 : 0.0;
  sums[RowRuleColumnIndex(r, kRowRuleSum)] = q;
  sums[RowRuleColumnIndex(r, kRowRuleSquared)] = q * q;
  extend(out, static_cast<RowExtremum>(kRowExtremumRules + r), q);
  const bool fired = (state.fired >> r & 1u) != 0;
  const double reach = row.sums[RuleColumnIndex(r, kRuleFired)];
  const double dropped = rule.is_sequence && !fired ? 0.0 : reach;
  sums[RowRuleColumnIndex(r, kRowRuleDroppedTokens)] = dropped;
  sums[RowRuleColumnIndex(r, kRowRuleDroppedRows)] = dropped > 0.0 ? 1.0 : 0.0;
  if (rule.is_sequence) {
    // x is the row's statistic at each of its tokens.
    row.sums[RuleColumnIndex(r, kRuleSum)] = seen * q;
    if (plan.spec.peer_sums) {
      const double capped = q > rule.clamped_upper ? rule.clamped_upper : q;
      const double y =
          capped < rule.clamped_lower ? rule.clamped_lower : capped;
      row.sums[RuleColumnIndex(r, kRuleClamped)] = seen * y;
      row.sums[RuleColumnIndex(r, kRuleClampedSquared)] = seen * (y * y);
    }
    row.sums[RuleColumnIndex(r, kRuleHigh)] = sides.high ? seen : 0.0;
    row.sums[RuleColumnIndex(r, kRuleLow)] = sides.low ? seen : 0.0;
  }
}

// REQUIRES: decide_row() of the row gave `state`. Changes `row`, which is not
// needed after.
template <class Segment, class Row>
COUNTERWEIGHT_HD void make_row_record(const Plan& plan, Segment& row,
                                      const RowState& state, Row& out) {
  clear_row_sums(plan, out);
  out.first_bad = row.first_bad;
  const double n = row.sums[kColumnTokens];
  if (n > 0.0) {
    add_drift(plan, row, n, out);
    add_weight(plan, n, row, out);
    for (int r = 0; r < plan.spec.num_rules; ++r) {
      add_rule(plan, r, state, row, out);
    }
    const double kept = row.sums[kColumnKept];
    out.row_sums[kRowKept] = kept > 0.0 ? 1.0 : 0.0;
    out.row_sums[kRowTouched] = kept < n ? 1.0 : 0.0;
  }
  for (int c = 0; c < plan.token_columns; ++c) {
    out.token_sums[c] = row.sums[c];
  }
  for (int e = 0; e < plan.token_extrema; ++e) {
    out.token_low[e] = static_cast<double>(row.low[e]);
    out.token_high[e] = static_cast<double>(row.high[e]);
  }
  if (plan.loss.active) add_loss(plan.loss, n, state.loss, row.loss, out);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_RECORD_H_
