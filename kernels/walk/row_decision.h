// Decisions from a row's sums for its tokens: the sequence rules that fire, and
// the row's weight. `Segment` has the members of SegmentRecord.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_DECISION_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_DECISION_H_

#include "kernels/math/exp.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/rules/aggregations.h"
#include "kernels/walk/loss_row.h"
#include "kernels/walk/one_row.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The sums of rule r over the tokens of a row that it saw. `Rows` is a OneRow,
// or one of the rows of a register.
template <class Rows>
class RowOfRule {
 public:
  using Number = typename Rows::Number;

  COUNTERWEIGHT_HD RowOfRule(const Rows& rows, int r) : rows_(rows), r_(r) {}

  COUNTERWEIGHT_HD Number seen() const { return of(kRuleSeen); }
  // Both are of the estimator.
  COUNTERWEIGHT_HD Number sum() const { return of(kRuleSum); }
  COUNTERWEIGHT_HD Number most() const {
    return rows_.high(kExtremumRules + r_);
  }
  // Tokens outside the interval; kAggregatesCounts only.
  COUNTERWEIGHT_HD Number above() const { return of(kRuleHigh); }
  COUNTERWEIGHT_HD Number below() const { return of(kRuleLow); }

 private:
  COUNTERWEIGHT_HD Number of(RuleColumn column) const {
    return rows_.sum(RuleColumnIndex(r_, column));
  }

  const Rows& rows_;
  const int r_;
};

// The statistic of a rule for a row, 0 for one that it saw empty, and the sides
// on which it lies. Token rules: the row's mean.
template <class V>
struct RuleStatistic {
  V x;
  Sides<V> sides;
};

template <class Rows>
COUNTERWEIGHT_HD RuleStatistic<typename Rows::Number> row_statistic(
    const Plan& plan, int r, const Rows& rows) {
  using V = typename Rows::Number;
  const RulePlan& rule = plan.rules[r];
  const RowOfRule<Rows> row(rows, r);
  RuleStatistic<V> statistic{};
  with_aggregation(rule.rule.aggregation, [&](auto aggregation) {
    const V x = aggregation.statistic(rule.rule, row);
    statistic.x = row.seen() > 0.0 ? x : V{};
    statistic.sides = aggregation.sides(rule, statistic.x, row);
  });
  return statistic;
}

COUNTERWEIGHT_HD bool empties_row(const RulePlan& rule) {
  return rule.is_sequence && !rule.is_conditional &&
         rule.rule.effect == Effect::kDrop;
}

// The weight of a sequence level and its logarithm before the last clamp.
template <class V>
struct RowWeight {
  V raw_log;
  V raw;
  V raw_excess;
  V weight;
  V excess;
};

template <class Rows>
COUNTERWEIGHT_HD RowWeight<typename Rows::Number> row_weight(
    const WeightPlan& plan, const Rows& rows) {
  using V = typename Rows::Number;
  const WeightSpec& spec = plan.spec;
  const V sum = rows.sum(kColumnWeightAggregate);
  const V seen = rows.sum(kColumnWeightSeen);
  const V mean = seen > 0.0 ? sum / seen : V{};
  const V log = spec.level == Level::kGeometric ? mean : sum;
  const ExpTerms64Of<V> raw = exp_terms64(clamped64(log, spec.aggregate_clamp));
  const auto high = raw.exp > spec.upper;
  const auto low = raw.exp < spec.lower;
  const bool masks = spec.bound == Bound::kMask;
  const double above = masks ? 0.0 : spec.upper;
  const double below = masks ? 0.0 : spec.lower;
  const auto bounded = [&](V own, double beyond_upper,
                           double beyond_lower) COUNTERWEIGHT_INLINE_LAMBDA {
    const V capped = high ? spread_wide<V>(beyond_upper) : own;
    return low ? spread_wide<V>(beyond_lower) : capped;
  };
  return {log, raw.exp, raw.expm1, bounded(raw.exp, above, below),
          bounded(raw.expm1, above - 1.0, below - 1.0)};
}

// Decides the row, the batch's `index`-th, and settles its columns: rules after
// one that emptied the row saw nothing, and neither did a weight that waits for
// it. Leaves state.loss alone where there is no loss.
template <class Segment>
COUNTERWEIGHT_HD void decide_row(const Plan& plan, const LossContext& context,
                                 int64_t index, Segment& row, RowState& state) {
  const bool sequential = plan.spec.evaluation == Evaluation::kSequential;
  const OneRow<Segment> one(row, state);
  uint32_t fired = 0;
  bool emptied = false;
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    const RulePlan& rule = plan.rules[r];
    if (sequential && emptied) {
      for (int c = 0; c < kNumRuleColumns; ++c) {
        row.sums[RuleColumnIndex(r, static_cast<RuleColumn>(c))] = 0.0;
      }
      row.low[kExtremumRules + r] = __builtin_inff();
      row.high[kExtremumRules + r] = -__builtin_inff();
    }
    if (rule.is_sequence && row.sums[RuleColumnIndex(r, kRuleSeen)] > 0.0) {
      const Sides<double> sides = row_statistic(plan, r, one).sides;
      if (sides.high || sides.low) {
        fired |= uint32_t{1} << r;
        emptied = emptied || empties_row(rule);
      }
    }
    if (r < plan.weight.spec.after_rule && emptied) {
      row.sums[kColumnWeightAggregate] = 0.0;
      row.sums[kColumnWeightSeen] = 0.0;
      row.sums[kColumnWeightSeenHigh] = 0.0;
    }
  }
  constexpr Needs kHits = kNeedRules | kNeedTokenHits;
  if ((plan.needs & kHits) == kNeedRules) {
    row.sums[kColumnKeptWeight] = row.sums[kColumnWeight];
    row.sums[kColumnKeptWeightSquared] = row.sums[kColumnWeightSquared];
  }
  if (emptied) {
    row.sums[kColumnKept] = 0.0;
    row.sums[kColumnKeptWeight] = 0.0;
    row.sums[kColumnKeptWeightSquared] = 0.0;
  }
  float weight = 0.0f;
  if (IsSequenceLevel(plan.weight.spec.level)) {
    weight = static_cast<float>(row_weight(plan.weight, one).weight);
  }
  state.fired = fired;
  state.weight = weight;
  if (!plan.loss.active) return;
  if (emptied && plan.loss.spec.over == TokenSet::kKept) {
    for (int c = 0; c < kNumLossStatistics; ++c) row.loss.sums[c] = 0.0;
  }
  const RowCounts counts{row.sums[kColumnTokens], row.sums[kColumnKept]};
  decide_loss(plan, context, index, counts, weight, row.loss, state.loss);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_DECISION_H_
