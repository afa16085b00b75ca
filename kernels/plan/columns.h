// Indices of a batch's sums. A walk adds tokens into columns; segments, then
// rows, are added column by column. column_table.h describes each column.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_PLAN_COLUMNS_H_

#include "kernels/plan/loss_columns.h"
#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// Sums over tokens.
enum TokenColumn : int {
  kColumnTokens,       // 1
  kColumnLogRatio,     // l
  kColumnDenominator,  // denominator log-prob
  kColumnAbs,          // |l|
  kColumnSquared,      // l^2, twice k2
  kColumnK3,
  kColumnExcess,         // u of the clamped l
  kColumnExcessSquared,  // u^2
  // kNumHistogramEdges columns: l <= edge. Until settle_segment() the upper
  // half holds something else, see DriftPhase.
  kColumnHistogram,
  kColumnAbsDifference = kColumnHistogram + kNumHistogramEdges,
  kColumnSquaredDifference,
  kColumnP,
  kColumnQ,
  kColumnPSquared,
  kColumnQSquared,
  kColumnPQ,
  kColumnNonFinite,
  kColumnPositive,  // tokens with a log-prob above 0
  kColumnKept,
  kColumnZeroWeight,
  kColumnWeight,
  kColumnWeightSquared,
  kColumnWeightExcess,
  kColumnWeightExcessSquared,
  // The same of tokens that no rule dropped or zeroed. Sequence levels: their
  // number, until add_weight() settles both.
  kColumnKeptWeight,
  kColumnKeptWeightSquared,
  kColumnRawExcess,  // u of the clamped l of the weight's source
  kColumnWeightHigh,
  kColumnWeightLow,
  kColumnWeightAggregate,  // clamped l under the weight's mask
  kColumnWeightSeen,       // tokens of that mask
  kColumnWeightSeenHigh,   // of them raw > upper; TOKEN
  kColumnRules,            // kNumRuleColumns for each rule
};

enum RuleColumn : int {
  kRuleSum,      // x; exact for RATIO with SUM or MEAN
  kRuleClamped,  // y of PeerRuleSums
  kRuleClampedSquared,
  kRuleSeen,
  kRuleHigh,
  kRuleLow,
  // Token rules: tokens it fired on. Sequence rules: seen tokens where the
  // condition holds.
  kRuleFired,
  // PREFIX_MEAN: sum of the estimator, from which later segments start.
  kRuleAggregate,
  kNumRuleColumns,
};

inline constexpr int kMaxTokenColumns =
    kColumnRules + kNumRuleColumns * kMaxRules;

// LossColumn c is column kColumnLoss + c.
inline constexpr int kColumnLoss = kMaxTokenColumns;
inline constexpr int kNumColumns = kColumnLoss + kNumLossColumns;

constexpr int RuleColumnIndex(int rule, RuleColumn column) {
  return kColumnRules + rule * kNumRuleColumns + column;
}

// Extrema over tokens, float32.
enum TokenExtremum : int {
  kExtremumLogRatio,
  kExtremumDifference,  // |p - q|
  kExtremumWeight,
  kExtremumRules,  // one for each rule
};
inline constexpr int kMaxTokenExtrema = kExtremumRules + kMaxRules;
inline constexpr int kExtremumLoss = kMaxTokenExtrema;
inline constexpr int kNumExtrema = kExtremumLoss + kNumLossExtrema;

// Sums over rows.
enum RowColumn : int {
  kRowNonempty,
  kRowKept,
  kRowTouched,
  kRowNumeratorLogPpl,
  kRowNumeratorPpl,
  kRowDenominatorLogPpl,
  kRowDenominatorPpl,
  kRowLogPplDifference,
  kRowAbsLogPplDifference,
  kRowPplRatioExcess,
  kRowChi2,
  kRowHistogram,  // kNumHistogramEdges columns
  kRowWeightExcess = kRowHistogram + kNumHistogramEdges,
  kRowWeightExcessSquared,
  kRowWeightMean,  // p_i itself, accurate where weights are tiny
  kRowWeightHigh,
  kRowWeightLow,
  kRowWeightLogHigh,
  kRowWeightLogLow,
  kRowRules,  // kNumRowRuleColumns for each rule
};

enum RowRuleColumn : int {
  kRowRuleSeen,
  kRowRuleHigh,
  kRowRuleLow,
  kRowRuleSum,
  kRowRuleSquared,
  kRowRuleDroppedTokens,
  kRowRuleDroppedRows,
  kNumRowRuleColumns,
};

inline constexpr int kMaxRowColumns =
    kRowRules + kNumRowRuleColumns * kMaxRules;

constexpr int RowRuleColumnIndex(int rule, RowRuleColumn column) {
  return kRowRules + rule * kNumRowRuleColumns + column;
}

// Sums over rows of whole numbers, which are exact in any order.
constexpr bool IsRowCount(int column) {
  if (column >= kRowRules) {
    const int of_rule = (column - kRowRules) % kNumRowRuleColumns;
    return of_rule != kRowRuleSum && of_rule != kRowRuleSquared;
  }
  const bool is_drift = column >= kRowNumeratorLogPpl && column <= kRowChi2;
  const bool is_weight = column >= kRowWeightExcess && column <= kRowWeightMean;
  return !is_drift && !is_weight;
}

// Extrema over rows, float64.
enum RowExtremum : int {
  kRowExtremumLogPplDifference,
  kRowExtremumLogRatio,  // s_i
  kRowExtremumWeight,    // p_i
  kRowExtremumRawLog,    // aggregated log ratio of the weight
  kRowExtremumRules,     // q_i
};
inline constexpr int kMaxRowExtrema = kRowExtremumRules + kMaxRules;

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_COLUMNS_H_
