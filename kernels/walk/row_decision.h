// Decisions from a row's sums for its tokens: the sequence rules that fire, and
// the row's weight. `Segment` has the members of SegmentRecord.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_DECISION_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_DECISION_H_

#include "kernels/math/exp.h"
#include "kernels/rules/aggregations.h"
#include "kernels/walk/loss_row.h"
#include "kernels/walk/plan.h"
#include "kernels/walk/record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Segment>
COUNTERWEIGHT_HD RowOfRule row_of_rule(int r, const Segment& row) {
  return {row.sums[RuleColumnIndex(r, kRuleSeen)],
          row.sums[RuleColumnIndex(r, kRuleSum)], row.high[kExtremumRules + r],
          row.sums[RuleColumnIndex(r, kRuleHigh)],
          row.sums[RuleColumnIndex(r, kRuleLow)]};
}

// The statistic of rule r for a row; 0 for one that it saw empty. Token rules:
// the row's mean.
template <class Segment>
COUNTERWEIGHT_HD double row_statistic(const Plan& plan, int r,
                                      const Segment& row) {
  const RejectionRule& rule = plan.rules[r].rule;
  const RowOfRule sums = row_of_rule(r, row);
  double statistic = 0.0;
  if (!(sums.seen > 0.0)) return statistic;
  with_aggregation(rule.aggregation, [&](auto aggregation) {
    statistic = aggregation.statistic(rule, sums);
  });
  return statistic;
}

template <class Segment>
COUNTERWEIGHT_HD Sides row_sides(const Plan& plan, int r, const Segment& row) {
  const RulePlan& rule = plan.rules[r];
  const double x = row_statistic(plan, r, row);
  Sides sides{};
  with_aggregation(rule.rule.aggregation, [&](auto aggregation) {
    sides = aggregation.sides(rule, x, row_of_rule(r, row));
  });
  return sides;
}

COUNTERWEIGHT_HD bool empties_row(const RulePlan& rule) {
  return rule.is_sequence && !rule.is_conditional &&
         rule.rule.effect == Effect::kDrop;
}

// The weight of a sequence level and its logarithm before the last clamp.
struct RowWeight {
  double raw_log;
  double raw;
  double raw_excess;
  double weight;
  double excess;
};

template <class Segment>
COUNTERWEIGHT_HD RowWeight row_weight(const WeightPlan& plan,
                                      const Segment& row) {
  const WeightSpec& spec = plan.spec;
  const double sum = row.sums[kColumnWeightAggregate];
  const double seen = row.sums[kColumnWeightSeen];
  const double mean = seen > 0.0 ? sum / seen : 0.0;
  const double log = spec.level == Level::kGeometric ? mean : sum;
  const ExpTerms64 raw = exp_terms64(clamped64(log, spec.aggregate_clamp));
  const bool high = raw.exp > spec.upper;
  const bool low = raw.exp < spec.lower;
  const bool masks = spec.bound == Bound::kMask;
  const double above = masks ? 0.0 : spec.upper;
  const double below = masks ? 0.0 : spec.lower;
  RowWeight weight{log, raw.exp, raw.expm1, raw.exp, raw.expm1};
  if (high) {
    weight.weight = above;
    weight.excess = above - 1.0;
  }
  if (low) {
    weight.weight = below;
    weight.excess = below - 1.0;
  }
  return weight;
}

// Decides the row, the batch's `index`-th, and settles its columns: rules after
// one that emptied the row saw nothing, and neither did a weight that waits for
// it.
template <class Segment>
COUNTERWEIGHT_HD RowState decide_row(const Plan& plan,
                                     const LossContext& context, int64_t index,
                                     Segment& row) {
  const bool sequential = plan.spec.evaluation == Evaluation::kSequential;
  RowState state{};
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
      const Sides sides = row_sides(plan, r, row);
      if (sides.high || sides.low) {
        state.fired |= uint32_t{1} << r;
        emptied = emptied || empties_row(rule);
      }
    }
    if (r < plan.weight.spec.after_rule && emptied) {
      row.sums[kColumnWeightAggregate] = 0.0;
      row.sums[kColumnWeightSeen] = 0.0;
      row.sums[kColumnWeightSeenHigh] = 0.0;
    }
  }
  if (emptied) row.sums[kColumnKept] = 0.0;
  if (IsSequenceLevel(plan.weight.spec.level)) {
    state.weight = static_cast<float>(row_weight(plan.weight, row).weight);
  }
  // Records on a device have the columns of a loss only if there is one.
  if (emptied && plan.loss.active && plan.loss.spec.over == TokenSet::kKept) {
    for (int c = 0; c < kNumLossStatistics; ++c) row.loss.sums[c] = 0.0;
  }
  const RowCounts counts{row.sums[kColumnTokens], row.sums[kColumnKept]};
  state.loss =
      decide_loss(plan, context, index, counts, state.weight, row.loss);
  return state;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_DECISION_H_
