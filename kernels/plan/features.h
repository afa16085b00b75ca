// Features of a plan that a walk must support. A walk compiled for plans of one
// kind alone has its tiles in registers and no code for other features.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_FEATURES_H_
#define COUNTERWEIGHT_KERNELS_PLAN_FEATURES_H_

#include <cstdint>

namespace counterweight::kernels {

enum Feature : uint32_t {
  kFeatureRules = 1u << 0,
  kFeaturePrefixes = 1u << 1,        // running means
  kFeaturePeerCorrection = 1u << 2,  // CorrectionSpec::peer_sums
  kFeatureLoss = 1u << 3,
  kFeatureSurrogates = 1u << 4,     // with a ratio, without kTraitCommon
  kFeatureRowLoss = 1u << 5,        // losses that need sums of their row
  kFeatureKl = 1u << 6,             // the penalty
  kFeaturePadding = 1u << 7,        // masked positions are read
  kFeatureSelection = 1u << 8,      // KL_COV, CLIP_COV
  kFeatureRowAdvantages = 1u << 9,  // prescales_advantages
  kFeatureMixedSources = 1u << 10,  // weight and rules of several ratios
  kFeatureReinforce = 1u << 11,     // surrogates without a ratio
  kFeatureTokenWeights = 1u << 12,
  kFeatureRowWeights = 1u << 13,
  kFeatureVanishing = 1u << 14,    // weights by token that can be 0
  kFeatureOwnRatio = 1u << 15,     // WeightPlan::is_drift is false
  kFeatureLateWeights = 1u << 16,  // that wait for rules
  kFeatureZeroing = 1u << 17,      // rules that zero weights
  kFeatureSequential = 1u << 18,   // rules that see what others left
  kFeatureConditions = 1u << 19,   // rules for some advantages
  kFeatureMetrics = 1u << 20,      // Plan::measures
  kFeatureReasons = 1u << 21,      // outputs, not the plan, request reasons
  kFeatureDivergences = 1u << 22,  // rules of two probabilities
  kFeatureKlRatio = 1u << 23,      // KlSpec::gradient_ratio_cap
  // CorrectionSpec::unknown_rollout, and more than the drift reads the rollout
  // log-probs.
  kFeatureUnknown = 1u << 24,
  kFeaturePeerLoss = 1u << 25,  // LossSpec::peer_sums
};

// All features of plans with RowRatioLoss.
inline constexpr uint32_t kRowRatioFeatures =
    kFeatureLoss | kFeatureRowLoss | kFeatureMetrics;

// The readers of a ratio.
enum class SourceUse : uint8_t {
  kDrift,
  kCorrection,  // the weight and all rules
  kLoss,
  kLossMetrics,
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_FEATURES_H_
