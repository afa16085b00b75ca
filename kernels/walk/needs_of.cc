#include "kernels/surrogates/list.h"
#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

// The first source of the weight and the rules, the drift's if there are none.
RatioSource CorrectionSource(const Plan& plan) {
  if (plan.weight.spec.level != Level::kNone) return plan.weight.spec.source;
  return plan.spec.num_rules > 0 ? plan.rules[0].rule.source
                                 : plan.spec.drift_source;
}

// True if not only the drift reads the rollout log-probs: the drift's numerator
// replaces an unknown one, which is a number for the other ratios.
bool MarksUnknown(const Plan& plan) {
  if (!plan.spec.unknown_rollout) return false;
  for (const RatioSource source :
       {RatioSource::kOldRollout, RatioSource::kCurrentRollout}) {
    const bool reads = (plan.sources >> static_cast<int>(source) & 1u) != 0;
    if (reads && source != plan.spec.drift_source) return true;
  }
  return false;
}

// Bit `need` where `has`.
Needs Where(bool has, Need need) { return has ? need : Needs{0}; }

// The sums of advantages are of walks with all surrogates.
constexpr Needs kMeanAdvantages = kNeedMeanAdvantages | kNeedSurrogates;

Needs NeedsOfLoss(const LossPlan& loss) {
  if (!loss.active) return 0;
  return kNeedLoss | NeedOf(InfoOf(loss.spec.surrogate)) |
         Where(loss.by_row, kNeedRowLoss) |
         Where(loss.spec.level == LossLevel::kSequence, kNeedRowRatio) |
         Where(loss.needs_row_gradient, kNeedRowGradient) |
         Where(loss.has_kl, kNeedKl) |
         Where(loss.has_kl_ratio || loss.has_kl_source, kNeedKlRatio) |
         Where(loss.reads_padding, kNeedPadding) |
         Where(loss.counts_dropped, kNeedDroppedLoss) |
         Where(loss.selects, kNeedSelection) |
         Where(loss.spec.prescales_advantages, kNeedRowAdvantages) |
         (loss.spec.averages_advantages ? kMeanAdvantages : Needs{0});
}

Needs NeedsOfWeight(const WeightPlan& weight) {
  const Level level = weight.spec.level;
  if (level == Level::kNone) return 0;
  const Needs late = Where(weight.spec.after_rule > 0, kNeedLateWeights);
  if (IsSequenceLevel(level)) return kNeedRowWeights | late;
  const Need by =
      level == Level::kToken ? kNeedTokenWeights : kNeedPrefixWeights;
  return by | late | Where(weight.can_vanish, kNeedVanishing) |
         Where(!weight.is_drift, kNeedOwnRatio);
}

Needs NeedsOfRules(const Plan& plan) {
  if (plan.spec.num_rules == 0) return 0;
  const bool sequential = plan.spec.evaluation == Evaluation::kSequential;
  Needs needs = kNeedRules | Where(sequential, kNeedSequential);
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    const RulePlan& rule = plan.rules[r];
    needs |=
        Where(rule.rule.effect == Effect::kZeroWeight, kNeedZeroing) |
        Where(rule.is_conditional, kNeedConditions) |
        Where(!rule.is_sequence || rule.hits_in_statistics, kNeedTokenHits) |
        Where(IsDivergence(rule.rule.estimator), kNeedDivergences);
  }
  return needs;
}

Needs NeedsOfMetrics(const Plan& plan) {
  if (!plan.measures) return 0;
  const bool of_loss = plan.loss.active && plan.spec.loss.peer_sums;
  return kNeedMetrics | Where(plan.spec.peer_sums, kNeedPeerSums) |
         Where(of_loss, kNeedPeerLoss);
}

}  // namespace

Needs NeedsOf(const Plan& plan) {
  bool is_mixed = false;
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    is_mixed = is_mixed || plan.rules[r].rule.source != CorrectionSource(plan);
  }
  return kNeedTokens | NeedsOfMetrics(plan) | NeedsOfWeight(plan.weight) |
         NeedsOfRules(plan) | NeedsOfLoss(plan.loss) |
         Where(plan.num_prefixes > 0, kNeedPrefixes) |
         Where(MarksUnknown(plan), kNeedUnknown) |
         Where(is_mixed, kNeedMixedSources);
}

RatioSource SourceOf(const Plan& plan, SourceUse use) {
  const RatioSource drift = plan.spec.drift_source;
  switch (use) {
    case SourceUse::kDrift:
      return drift;
    case SourceUse::kCorrection:
      return CorrectionSource(plan);
    case SourceUse::kLoss:
      return plan.loss.has_ratio ? plan.loss.spec.source : drift;
    case SourceUse::kLossMetrics:
      return plan.loss.active ? plan.loss.spec.metrics_source : drift;
  }
  return drift;
}

}  // namespace counterweight::kernels
