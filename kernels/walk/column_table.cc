#include "kernels/walk/column_table.h"

namespace counterweight::kernels {

bool HasPart(const Plan& plan, Part part, int rule) {
  if (rule >= plan.spec.num_rules) return false;
  const WeightPlan& weight = plan.weight;
  const LossPlan& loss = plan.loss;
  const bool by_token =
      weight.spec.level == Level::kToken || weight.spec.level == Level::kPrefix;
  const bool aggregates =
      IsSequenceLevel(weight.spec.level) || weight.prefix >= 0;
  const bool waits = by_token && !aggregates && weight.spec.after_rule > 0;
  switch (part) {
    case Part::kDrift:
    case Part::kDecisions:
    case Part::kRuleSums:
    case Part::kRules:
      return true;
    case Part::kTokenWeights:
      return by_token;
    case Part::kProbabilities:
    case Part::kRulePeers:
      return plan.spec.peer_sums;
    case Part::kWeightAggregate:
      return aggregates;
    case Part::kWeightSeen:
      return aggregates || waits;
    case Part::kWeightSeenHigh:
      return waits;
    case Part::kRulePrefix:
      return plan.rules[rule].prefix >= 0;
    case Part::kLossStatistics:
      return loss.active && (loss.by_row || loss.selects);
    case Part::kLoss:
      return loss.active;
    case Part::kLossPeers:
      return loss.active && loss.spec.peer_sums;
    case Part::kLossKlPeers:
      return loss.active && loss.has_kl && loss.spec.peer_sums;
    case Part::kLossSequenceSlope:
      return loss.active && loss.needs_row_gradient;
    case Part::kLossKl:
      return loss.active && loss.has_kl;
    case Part::kLossKlSequenceSlope:
      return loss.active && loss.has_kl && loss.needs_row_gradient;
    case Part::kLossPadding:
      return loss.active && loss.reads_padding;
  }
  return false;
}

bool HasColumn(const Plan& plan, int column) {
  const Part part = kColumnTable.columns[column].part;
  // A row's weight counts once for each of its tokens.
  if (part == Part::kTokenWeights) {
    return plan.weight.spec.level != Level::kNone;
  }
  return HasPart(plan, part, RuleOfColumn(column));
}

}  // namespace counterweight::kernels
