// Partial sums of finished rows. `Rows` is a OneRow or RowLanes, V its numbers,
// and `Sums` has the members of RowRecord that are sums over rows, as V.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_RECORD_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_RECORD_H_

#include "kernels/math/exp.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/walk/one_row.h"
#include "kernels/walk/row_decision.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// No row at all.
template <class Row>
COUNTERWEIGHT_HD void clear_row(const Plan& plan, Row& record) {
  for (int c = 0; c < plan.row_columns; ++c) record.row_sums[c] = 0.0;
  for (int e = 0; e < plan.row_extrema; ++e) {
    record.row_low[e] = __builtin_inf();
    record.row_high[e] = -__builtin_inf();
  }
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

// The sums over rows of a RowRecord; rows without tokens get none.
template <class Sums, class V>
class NonemptyRows {
 public:
  // tokens: of each row.
  COUNTERWEIGHT_HD NonemptyRows(Sums& sums, V tokens)
      : sums_(sums), is_counted_(tokens > 0.0) {}

  COUNTERWEIGHT_HD auto is_counted() const { return is_counted_; }
  // x of the rows that count, else 0.
  COUNTERWEIGHT_HD V counted(V x) const { return is_counted_ ? x : V{}; }
  COUNTERWEIGHT_HD void set(int column, V x) const {
    sums_.row_sums[column] = counted(x);
  }
  template <class Bool>
  COUNTERWEIGHT_HD void set_flag(int column, Bool flag) const {
    set(column, flag ? spread_wide<V>(1.0) : V{});
  }
  COUNTERWEIGHT_HD void clear(int column) const {
    sums_.row_sums[column] = V{};
  }
  COUNTERWEIGHT_HD void clear_extremum(int extremum) const {
    const V infinity = spread_wide<V>(__builtin_inf());
    sums_.row_low[extremum] = infinity;
    sums_.row_high[extremum] = -infinity;
  }
  COUNTERWEIGHT_HD void extend(int extremum, V x) const {
    const V infinity = spread_wide<V>(__builtin_inf());
    sums_.row_low[extremum] = is_counted_ ? x : infinity;
    sums_.row_high[extremum] = is_counted_ ? x : -infinity;
  }

 private:
  Sums& sums_;
  const BoolOf<V> is_counted_;
};

// Perplexities and their ratio: a_i = mean numerator log-prob, b_i = mean
// denominator one, e_i = b_i - a_i taken from the exact sum of l.
template <class Rows, class V, class Sums>
COUNTERWEIGHT_HD void add_drift(const Plan& plan, const Rows& rows, V n,
                                const NonemptyRows<Sums, V>& out) {
  const V log_ratio = rows.sum(kColumnLogRatio);
  const V mean = log_ratio / n;
  const V denominator = rows.sum(kColumnDenominator) / n;
  const V numerator = denominator + mean;
  const V e = -mean;
  out.set(kRowNonempty, spread_wide<V>(1.0));
  out.set(kRowNumeratorLogPpl, -numerator);
  out.set(kRowNumeratorPpl, exp64(-numerator));
  out.set(kRowDenominatorLogPpl, -denominator);
  out.set(kRowDenominatorPpl, exp64(-denominator));
  out.set(kRowLogPplDifference, e);
  out.set(kRowAbsLogPplDifference, e < 0.0 ? -e : e);
  out.set(kRowPplRatioExcess, expm1_64(e));
  out.set(kRowChi2, expm1_64(2.0 * clamped64(log_ratio, kSafetyClamp)));
  for (int b = 0; b < kNumHistogramEdges; ++b) {
    out.set_flag(kRowHistogram + b,
                 mean <= static_cast<double>(plan.histogram_edges[b]));
  }
  out.extend(kRowExtremumLogPplDifference, e);
  out.extend(kRowExtremumLogRatio, log_ratio);
}

// Row-level weights enter the token columns once per token.
template <class Rows, class V, class Sums>
COUNTERWEIGHT_HD void spread_row_weight(const Plan& whole, V n,
                                        const RowWeight<V>& weight,
                                        const NonemptyRows<Sums, V>& out,
                                        const Rows& rows) {
  const WeightPlan& plan = whole.weight;
  const auto set = [&](int column, V x) COUNTERWEIGHT_INLINE_LAMBDA {
    rows.set_sum(column, out.counted(x));
  };
  const V w = weight.weight;
  set(kColumnWeight, n * w);
  set(kColumnWeightSquared, n * (w * w));
  set(kColumnWeightExcess, n * weight.excess);
  set(kColumnWeightExcessSquared, n * (weight.excess * weight.excess));
  set(kColumnRawExcess, n * weight.raw_excess);
  set(kColumnWeightHigh, weight.raw > plan.spec.upper ? n : V{});
  set(kColumnWeightLow, weight.raw < plan.low_threshold64 ? n : V{});
  const V kept = rows.sum((whole.needs & kNeedZeroing) != 0 ? kColumnKeptWeight
                                                            : kColumnKept);
  set(kColumnKeptWeight, kept > 0.0 ? kept * w : V{});
  set(kColumnKeptWeightSquared, kept > 0.0 ? kept * (w * w) : V{});
  const V infinity = spread_wide<V>(__builtin_inf());
  rows.set_extremum(kExtremumWeight, out.is_counted() ? w : infinity,
                    out.is_counted() ? w : -infinity);
  // Half of the smallest float32 above 0: so it rounds to 0.
  const V zeros = w <= 0x1p-150 ? n : rows.sum(kColumnZeroWeight);
  set(kColumnZeroWeight, zeros);
}

template <class Rows, class V, class Sums>
COUNTERWEIGHT_HD void add_weight(const Plan& plan, V n, const Rows& rows,
                                 const NonemptyRows<Sums, V>& out) {
  const WeightPlan& weight = plan.weight;
  if (weight.spec.level == Level::kNone) {
    for (int c = kRowWeightExcess; c <= kRowWeightLow; ++c) out.clear(c);
    out.clear_extremum(kRowExtremumWeight);
  }
  if (IsSequenceLevel(weight.spec.level)) {
    const RowWeight<V> value = row_weight(weight, rows);
    spread_row_weight(plan, n, value, out, rows);
    out.set_flag(kRowWeightLogHigh, value.raw_log > weight.upper_log);
    out.set_flag(kRowWeightLogLow, value.raw_log < weight.low_threshold_log);
    out.extend(kRowExtremumRawLog, value.raw_log);
  } else {
    out.clear(kRowWeightLogHigh);
    out.clear(kRowWeightLogLow);
    out.clear_extremum(kRowExtremumRawLog);
  }
  if (weight.spec.level == Level::kNone) return;
  // Near 1 the sum of excesses is the accurate one, near 0 that of weights.
  const V excess = rows.sum(kColumnWeightExcess) / n;
  const V direct = rows.sum(kColumnWeight) / n;
  const V mean = direct < 0.5 ? direct : 1.0 + excess;
  const V raw_mean = rows.sum(kColumnRawExcess) / n;
  out.set(kRowWeightExcess, excess);
  out.set(kRowWeightExcessSquared, excess * excess);
  out.set(kRowWeightMean, mean);
  out.set_flag(kRowWeightHigh, raw_mean > weight.spec.upper - 1.0);
  out.set_flag(kRowWeightLow, raw_mean < weight.low_threshold64 - 1.0);
  out.extend(kRowExtremumWeight, mean);
}

// x is the row's statistic at each of its tokens.
template <class Rows, class V>
COUNTERWEIGHT_HD void spread_statistic(const Plan& plan, int r, V seen,
                                       const RuleStatistic<V>& statistic,
                                       const Rows& rows) {
  const RulePlan& rule = plan.rules[r];
  const auto set = [&](RuleColumn column, V x) COUNTERWEIGHT_INLINE_LAMBDA {
    rows.set_sum(RuleColumnIndex(r, column), seen > 0.0 ? x : V{});
  };
  const V q = statistic.x;
  set(kRuleSum, seen * q);
  if (plan.spec.peer_sums) {
    const V capped =
        q > rule.clamped_upper ? spread_wide<V>(rule.clamped_upper) : q;
    const V y = capped < rule.clamped_lower ? spread_wide<V>(rule.clamped_lower)
                                            : capped;
    set(kRuleClamped, seen * y);
    set(kRuleClampedSquared, seen * (y * y));
  }
  set(kRuleHigh, statistic.sides.high ? seen : V{});
  set(kRuleLow, statistic.sides.low ? seen : V{});
}

template <class Rows, class Sums>
COUNTERWEIGHT_HD void add_rule(const Plan& plan, int r, const Rows& rows,
                               Sums& sums) {
  using V = typename Rows::Number;
  const V seen = rows.sum(RuleColumnIndex(r, kRuleSeen));
  const NonemptyRows<Sums, V> out(sums, seen);
  const RuleStatistic<V> statistic = row_statistic(plan, r, rows);
  const V q = statistic.x;
  out.set(RowRuleColumnIndex(r, kRowRuleSeen), spread_wide<V>(1.0));
  out.set_flag(RowRuleColumnIndex(r, kRowRuleHigh), statistic.sides.high);
  out.set_flag(RowRuleColumnIndex(r, kRowRuleLow), statistic.sides.low);
  out.set(RowRuleColumnIndex(r, kRowRuleSum), q);
  out.set(RowRuleColumnIndex(r, kRowRuleSquared), q * q);
  out.extend(kRowExtremumRules + r, q);
  const V reach = rows.sum(RuleColumnIndex(r, kRuleFired));
  const bool is_sequence = plan.rules[r].is_sequence;
  V dropped = reach;
  if (is_sequence) dropped = rows.fired(r) ? reach : V{};
  out.set(RowRuleColumnIndex(r, kRowRuleDroppedTokens), dropped);
  out.set_flag(RowRuleColumnIndex(r, kRowRuleDroppedRows), dropped > 0.0);
  if (is_sequence) spread_statistic(plan, r, seen, statistic, rows);
}

// Makes the sums over rows, without those of the loss. REQUIRES: decide_row()
// gave the rows' states. Changes sums over tokens: a row's weight and
// statistics count once for each of its tokens.
template <class Rows, class Sums>
COUNTERWEIGHT_HD void add_rows(const Plan& plan, const Rows& rows, Sums& sums) {
  using V = typename Rows::Number;
  const V n = rows.sum(kColumnTokens);
  const NonemptyRows<Sums, V> out(sums, n);
  add_drift(plan, rows, n, out);
  add_weight(plan, n, rows, out);
  for (int r = 0; r < plan.spec.num_rules; ++r) add_rule(plan, r, rows, sums);
  const V kept = rows.sum(kColumnKept);
  out.set_flag(kRowKept, kept > 0.0);
  out.set_flag(kRowTouched, kept < n);
}

// The sums over tokens of one row, without those of the loss.
template <class Segment, class Row>
COUNTERWEIGHT_HD void take_token_sums(const Plan& plan, const Segment& row,
                                      Row& out) {
  out.first_bad = row.first_bad;
  for (int c = 0; c < plan.token_columns; ++c) {
    out.token_sums[c] = row.sums[c];
  }
  for (int e = 0; e < plan.token_extrema; ++e) {
    out.token_low[e] = static_cast<double>(row.low[e]);
    out.token_high[e] = static_cast<double>(row.high[e]);
  }
}

// Settles the loss of one row.
template <class Row>
COUNTERWEIGHT_HD void add_row_loss(const LossPlan& plan, double tokens,
                                   const LossRow& state, const LossRecord& loss,
                                   Row& out) {
  for (int c = 0; c < kNumLossColumns; ++c) out.loss_sums[c] = loss.sums[c];
  add_loss(plan, tokens, OneLossRow<Row>(out, loss, state), out);
}

// REQUIRES: decide_row() of the row gave `state`. Changes `row`, which is not
// needed after.
template <class Segment, class Row>
COUNTERWEIGHT_HD void make_row_record(const Plan& plan, Segment& row,
                                      const RowState& state, Row& out) {
  add_rows(plan, OneRow<Segment>(row, state), out);
  take_token_sums(plan, row, out);
  if (!plan.loss.active) return;
  add_row_loss(plan.loss, row.sums[kColumnTokens], state.loss, row.loss, out);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_RECORD_H_
