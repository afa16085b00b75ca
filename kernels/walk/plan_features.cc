#include <vector>

#include "kernels/surrogates/list.h"
#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

std::vector<RatioSource> CorrectionSources(const Plan& plan) {
  std::vector<RatioSource> sources;
  if (plan.weight.spec.level != Level::kNone) {
    sources.push_back(plan.weight.spec.source);
  }
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    sources.push_back(plan.rules[r].rule.source);
  }
  return sources;
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

uint32_t LossFeatures(const LossPlan& loss) {
  if (!loss.active) return 0;
  uint32_t features = kFeatureLoss | FeatureOf(InfoOf(loss.spec.surrogate));
  if (loss.by_row || loss.needs_row_gradient ||
      loss.spec.level != LossLevel::kToken) {
    features |= kFeatureRowLoss;
  }
  if (loss.has_kl) features |= kFeatureKl;
  if (loss.has_kl_ratio) features |= kFeatureKlRatio;
  if (loss.reads_padding) features |= kFeaturePadding;
  if (loss.selects) features |= kFeatureSelection;
  if (loss.spec.prescales_advantages) features |= kFeatureRowAdvantages;
  return features;
}

uint32_t WeightFeatures(const WeightPlan& weight) {
  uint32_t features = 0;
  const Level level = weight.spec.level;
  if (level == Level::kNone) return 0;
  if (IsSequenceLevel(level)) features |= kFeatureRowWeights;
  if (level == Level::kToken) {
    features |= kFeatureTokenWeights;
    if (!weight.is_drift) features |= kFeatureOwnRatio;
  }
  if (!IsSequenceLevel(level) && weight.can_vanish) {
    features |= kFeatureVanishing;
  }
  if (weight.spec.after_rule > 0) features |= kFeatureLateWeights;
  return features;
}

uint32_t RuleFeatures(const Plan& plan) {
  if (plan.spec.num_rules == 0) return 0;
  uint32_t features = kFeatureRules;
  if (plan.spec.evaluation == Evaluation::kSequential) {
    features |= kFeatureSequential;
  }
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    const RulePlan& rule = plan.rules[r];
    if (rule.rule.effect == Effect::kZeroWeight) features |= kFeatureZeroing;
    if (rule.is_conditional) features |= kFeatureConditions;
    if (IsDivergence(rule.rule.estimator)) features |= kFeatureDivergences;
  }
  return features;
}

}  // namespace

uint32_t FeaturesOf(const Plan& plan) {
  uint32_t features = LossFeatures(plan.loss) | WeightFeatures(plan.weight) |
                      RuleFeatures(plan);
  if (plan.num_prefixes > 0) features |= kFeaturePrefixes;
  if (MarksUnknown(plan)) features |= kFeatureUnknown;
  if (plan.measures) {
    features |= kFeatureMetrics;
    if (plan.spec.peer_sums) features |= kFeaturePeerCorrection;
    if (plan.loss.active && plan.spec.loss.peer_sums) {
      features |= kFeaturePeerLoss;
    }
  }
  const std::vector<RatioSource> sources = CorrectionSources(plan);
  for (const RatioSource source : sources) {
    if (source != sources[0]) features |= kFeatureMixedSources;
  }
  return features;
}

RatioSource SourceOf(const Plan& plan, SourceUse use) {
  const RatioSource drift = plan.spec.drift_source;
  switch (use) {
    case SourceUse::kDrift:
      return drift;
    case SourceUse::kCorrection: {
      const std::vector<RatioSource> sources = CorrectionSources(plan);
      return sources.empty() ? drift : sources[0];
    }
    case SourceUse::kLoss:
      return plan.loss.has_ratio ? plan.loss.spec.source : drift;
    case SourceUse::kLossMetrics:
      return plan.loss.active ? plan.loss.spec.metrics_source : drift;
  }
  return drift;
}

}  // namespace counterweight::kernels
