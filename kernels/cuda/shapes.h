// Kinds of plans that have walks of their own. A walk for any plan keeps its
// tiles in memory, because which tile a phase reads is known only when it runs;
// one for plans of a kind keeps them in registers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
#define COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/plan/features.h"
#include "kernels/plan/plan.h"

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

// The first shape that fits is used: the leanest are first.
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

// Shapes that were measured on an H100 (tests/benchmark/history.md); the others
// follow the rule that no walk spills what it needs in each step.
constexpr bool IsPpoAlone(const Shape& shape) {
  return (shape.features & ~(kFeatureLoss | kFeatureMetrics)) == 0;
}
constexpr bool HasRulesAlways(const Shape& shape) {
  return (shape.always & kFeatureRules) != 0;
}

// Blocks that a multiprocessor is to hold at once, which bounds registers.
constexpr int MinBlocks(int shape) {
  if (shape == kAnyPlan) return 4;
  constexpr uint32_t kHeavy = kFeatureRules | kFeatureLoss;
  const Shape& of = kShapes[shape];
  const bool is_heavy = (of.features & kHeavy) != 0;
  return is_heavy && !IsPpoAlone(of) && !HasRulesAlways(of) ? 3 : 4;
}

// Steps that a walk looks at together: one, as registers are short. Walks with
// rules test each property of a rule that much less often, and a loss without
// metrics has registers left for more in flight.
constexpr int StepsTogether(const Shape& shape) {
  constexpr int kBlock = 8;  // kSteps
  if (HasRulesAlways(shape)) return kBlock;
  if ((shape.features & kFeatureLoss) != 0) {
    return shape.features == kFeatureLoss ? kBlock / 2 : 1;
  }
  return (shape.features & kFeatureRules) != 0 ? 2 : 1;
}

// Index of the shape of `plan` where these outputs are wanted, or kAnyPlan.
int ShapeOf(const Plan& plan, const Outputs& outputs);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
