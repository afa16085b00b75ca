#include "kernels/walk/partial_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/walk/column_table.h"

namespace counterweight::kernels {
namespace {

// A clamp of so many nats keeps an exponential below 2^87, and the smaller one
// its square.
constexpr double kFewNats = 60.0;
constexpr double kFewNatsOfSquare = 40.0;

// Columns that are sums of their own field, and others that MakeBatchSums()
// reads.
bool IsRead(int column) {
  const bool is_histogram = column >= kColumnHistogram &&
                            column < kColumnHistogram + kNumHistogramEdges;
  switch (column) {
    case kColumnSquared:
    case kColumnNonFinite:
    case kColumnPositive:
    case kColumnWeightSeen:
    case kColumnWeightSeenHigh:
      return true;
    default:
      return is_histogram ||
             kColumnTable.columns[column].field.offset != kNoField.offset;
  }
}

// Counts that a walk without metrics has too.
bool IsCountOfTokens(int column) {
  return column == kColumnTokens || column == kColumnKept ||
         column == kColumnNonFinite || column == kColumnPositive;
}

bool IsOfPeers(int row_column) {
  switch (row_column) {
    case kRowNumeratorLogPpl:
    case kRowDenominatorLogPpl:
    case kRowWeightExcessSquared:
    case kRowWeightHigh:
    case kRowWeightLow:
    case kRowWeightLogLow:
      return true;
    default:
      return row_column >= kRowRules &&
             (row_column - kRowRules) % kNumRowRuleColumns == kRowRuleSquared;
  }
}

// Nats of the logarithm of the largest weight.
double MostNats(const WeightSpec& weight) {
  if (weight.level == Level::kNone) return 0.0;
  const double by_bound =
      weight.bound == Bound::kNone ? kUnbounded : std::log(weight.upper);
  return std::min(by_bound, weight.aggregate_clamp);
}

// Nats of the clamp of the statistic of a rule over rows, or of that of a
// token.
double MostNats(const RulePlan& rule) {
  const double clamp = rule.rule.aggregate_clamp;
  return rule.is_sequence && rule.rule.aggregation == Aggregation::kSum
             ? clamp
             : std::min(clamp, rule.rule.token_clamp);
}

bool IsWideRule(const RulePlan& rule, int column) {
  const double nats = MostNats(rule);
  if (column == kRuleSum) return rule.is_sequence && nats > kFewNats;
  if (column == kRuleClamped) {
    return rule.is_sequence && rule.clamped_upper > 0x1p87 && nats > kFewNats;
  }
  return column == kRuleClampedSquared && rule.clamped_upper > 0x1p58 &&
         nats > kFewNatsOfSquare;
}

bool IsWideToken(const Plan& plan, int column) {
  const int rule = RuleOfColumn(column);
  if (rule >= 0) {
    return IsWideRule(
        plan.rules[rule],
        static_cast<RuleColumn>((column - kColumnRules) % kNumRuleColumns));
  }
  // Squares of float32 numbers. Log-probs of -1e30, which stand for "never",
  // are large.
  return column == kColumnSquared ||
         column == kColumnLoss + kLossGradientSquared ||
         ((column == kColumnWeightSquared ||
           column == kColumnKeptWeightSquared) &&
          MostNats(plan.weight.spec) > kFewNatsOfSquare);
}

bool IsWideRow(const Plan& plan, int column) {
  if (column >= kRowRules) {
    const RulePlan& rule =
        plan.rules[(column - kRowRules) / kNumRowRuleColumns];
    const int of_rule = (column - kRowRules) % kNumRowRuleColumns;
    if (of_rule == kRowRuleSum) {
      return rule.is_sequence && MostNats(rule) > kFewNats;
    }
    return of_rule == kRowRuleSquared && MostNats(rule) > kFewNatsOfSquare;
  }
  return column == kRowNumeratorPpl || column == kRowDenominatorPpl ||
         column == kRowPplRatioExcess ||
         (column == kRowWeightExcessSquared &&
          MostNats(plan.weight.spec) > kFewNatsOfSquare);
}

bool HasRowColumn(const Plan& plan, int column) {
  const bool is_weight =
      column >= kRowWeightExcess && column <= kRowWeightLogLow;
  return (plan.spec.peer_sums || !IsOfPeers(column)) &&
         (plan.weight.spec.level != Level::kNone || !is_weight);
}

bool HasTokenExtremum(const Plan& plan, int extremum) {
  if (extremum == kExtremumDifference) return plan.spec.peer_sums;
  return extremum != kExtremumWeight || plan.weight.spec.level != Level::kNone;
}

bool HasRowExtremum(const Plan& plan, int extremum) {
  const bool has_weight = plan.weight.spec.level != Level::kNone;
  switch (extremum) {
    case kRowExtremumLogPplDifference:
      return plan.spec.peer_sums;
    case kRowExtremumWeight:
      return has_weight;
    case kRowExtremumRawLog:
      return has_weight && plan.spec.peer_sums;
    default:
      return true;
  }
}

bool IsOfPeers(RowLossColumn column) {
  return column != kRowLossPolicy && column != kRowLossKlPenalty;
}

}  // namespace

PartialLayout::PartialLayout(const Plan& plan) : columns(ColumnsOfRows(plan)) {
  const bool measures = plan.spec.metrics;
  int next = 0;
  const auto add_sum = [&](bool is_read, bool is_wide) {
    const int column = next++;
    if (!is_read) return;
    const bool is_whole = columns.op[column] == ColumnOp::kWhole;
    (is_whole ? whole : is_wide ? wide : narrow).push_back(column);
  };
  const auto has_column = [needs = NeedsOfRows(plan.needs),
                           rules = plan.spec.num_rules](int column) {
    return HasColumn(needs, rules, column);
  };
  const auto add_extrema = [&](int count, const auto& is_read) {
    for (std::vector<int>* const extrema : {&lows, &highs}) {
      for (int e = 0; e < count; ++e, ++next) {
        if (measures && is_read(e)) extrema->push_back(next);
      }
    }
  };
  for (int c = 0; c < plan.token_columns; ++c) {
    add_sum(measures ? IsRead(c) && has_column(c) : IsCountOfTokens(c),
            IsWideToken(plan, c));
  }
  for (int c = 0; c < plan.row_columns; ++c) {
    add_sum(
        measures ? HasRowColumn(plan, c) : c == kRowNonempty || c == kRowKept,
        IsWideRow(plan, c));
  }
  add_extrema(plan.token_extrema,
              [&](int e) { return HasTokenExtremum(plan, e); });
  add_extrema(plan.row_extrema, [&](int e) { return HasRowExtremum(plan, e); });
  ++next;  // first_bad
  if (!plan.loss.active) return;
  for (int c = 0; c < kNumLossColumns; ++c) {
    const int column = kColumnLoss + c;
    add_sum(measures && IsRead(column) && has_column(column),
            IsWideToken(plan, column));
  }
  const bool has_peers = measures && plan.loss.spec.peer_sums;
  for (int c = 0; c < kNumRowLossColumns; ++c) {
    add_sum(has_peers || !IsOfPeers(static_cast<RowLossColumn>(c)), false);
  }
  add_extrema(kNumRowLossExtrema, [&](int e) {
    return has_peers || e == kRowLossExtremumRatio ||
           e == kRowLossExtremumPaddingRatio;
  });
}

}  // namespace counterweight::kernels
