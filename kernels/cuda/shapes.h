// Kinds of plans that have walks of their own. A walk for any plan keeps its
// tiles in memory, because which tile a phase reads is known only when it runs;
// one for plans of a kind keeps them in registers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
#define COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/walk/features.h"

namespace counterweight::kernels {

struct Shape {
  RatioSource drift;  // of weights and rules too
  RatioSource loss;   // of its metrics too
  // Features that a plan may have and those that it must have.
  uint32_t features;
  uint32_t always;
};

// All features of weights and rules of one ratio except running means, with
// metrics and reasons or without.
inline constexpr uint32_t kAnyWeights = kFeatureMetrics | kFeatureTokenWeights |
                                        kFeatureRowWeights | kFeatureVanishing |
                                        kFeatureOwnRatio | kFeatureLateWeights |
                                        kFeatureReasons;
inline constexpr uint32_t kAnyRules =
    kFeatureRules | kFeatureZeroing | kFeatureSequential | kFeatureConditions;
inline constexpr uint32_t kCorrections = kAnyWeights | kAnyRules;
inline constexpr uint32_t kTruncated = kFeatureTokenWeights | kFeatureMetrics;
inline constexpr uint32_t kRowLoss =
    kFeatureLoss | kFeaturePeerLoss | kFeatureRowLoss | kFeatureKl;
inline constexpr uint32_t kAnyLoss =
    kRowLoss | kFeatureSurrogates | kFeatureReinforce;

// The first shape that fits is taken: the leanest come first.
inline constexpr Shape kShapes[] = {
    // Truncated weights of the drift's ratio, without metrics: TIS.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kFeatureTokenWeights,
     kFeatureTokenWeights},
    // With metrics.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kTruncated,
     kTruncated},
    // With metrics and rules.
    {RatioSource::kOldRollout, RatioSource::kOldRollout,
     kTruncated | kFeatureRules, kTruncated | kFeatureRules},
    // Weights alone: MIS, IcePop.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kAnyWeights, 0},
    // With rules: decoupled corrections.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kCorrections, 0},
    // The same in bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout, kCorrections,
     0},
    // PPO on its own, without metrics.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld, kFeatureLoss,
     kFeatureLoss},
    // With metrics.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     kFeatureLoss | kFeatureMetrics, kFeatureLoss | kFeatureMetrics},
    // PPO with decoupled truncated weights.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kTruncated | kFeatureLoss, kFeatureTokenWeights | kFeatureLoss},
    // PPO with decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kFeatureLoss | kFeaturePeerLoss | kCorrections, kFeatureLoss},
    // PPO and REINFORCE in bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout,
     kFeatureLoss | kFeaturePeerLoss | kCorrections | kFeatureReinforce,
     kFeatureLoss},
    // GRPO and GSPO, with a KL penalty or without, on their own.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     kRowLoss | kFeatureMetrics | kFeatureReasons, 0},
    // The same with decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kRowLoss | kCorrections, 0},
    // Any surrogate on its own.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     kAnyLoss | kFeatureMetrics | kFeatureReasons, kFeatureLoss},
    // With decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kAnyLoss | kCorrections, kFeatureLoss},
    // In bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout,
     kAnyLoss | kCorrections, kFeatureLoss},
};
inline constexpr int kNumShapes = sizeof(kShapes) / sizeof(kShapes[0]);
inline constexpr int kAnyPlan = -1;

// Plans with more rules have no shape.
inline constexpr int kMaxShapeRules = 3;

// Blocks that a multiprocessor is to hold at once, which bounds registers: more
// than these spill what the walk needs in each step.
constexpr int MinBlocks(int shape) {
  if (shape == kAnyPlan) return 4;
  constexpr uint32_t kHeavy = kFeatureRules | kFeatureLoss;
  return (kShapes[shape].features & kHeavy) == 0 ? 4 : 3;
}

// Steps that a walk looks at together: one, as registers are short. Walks with
// rules have enough for more, and ask each question about a rule that much less
// often.
constexpr int StepsTogether(const Shape& shape) {
  const bool has_rules = (shape.features & kFeatureRules) != 0;
  if (!has_rules || (shape.features & kFeatureLoss) != 0) return 1;
  return (shape.always & kFeatureRules) != 0 ? 4 : 2;
}

// Index of the shape of `plan` where these outputs are wanted, or kAnyPlan.
int ShapeOf(const Plan& plan, const Outputs& outputs);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
