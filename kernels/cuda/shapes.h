// Kinds of plans that have walks of their own. A walk for any plan keeps its
// tiles in memory, because which tile a phase reads is known only when it runs;
// one for plans of a kind keeps them in registers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
#define COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_

#include <cstdint>

#include "kernels/walk/features.h"

namespace counterweight::kernels {

struct Shape {
  RatioSource drift;
  RatioSource correction;
  RatioSource loss;  // and its metrics'
  // What a plan may ask for, Features.
  uint32_t features;
};

// The first that fits is taken: the leanest come first.
inline constexpr Shape kShapes[] = {
    // Weights alone: TIS, MIS, IcePop.
    {RatioSource::kOldRollout, RatioSource::kOldRollout,
     RatioSource::kOldRollout, 0},
    // With rules: decoupled corrections.
    {RatioSource::kOldRollout, RatioSource::kOldRollout,
     RatioSource::kOldRollout, kFeatureRules},
    // The same in bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout,
     RatioSource::kCurrentRollout, kFeatureRules},
    // PPO on its own.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     RatioSource::kCurrentOld, kFeatureLoss},
    // PPO with decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kOldRollout,
     RatioSource::kCurrentOld, kFeatureLoss | kFeatureRules},
    // PPO and REINFORCE in bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout,
     RatioSource::kCurrentRollout,
     kFeatureLoss | kFeatureRules | kFeatureReinforce},
    // GRPO and GSPO, with a KL penalty or without, on their own.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     RatioSource::kCurrentOld, kFeatureLoss | kFeatureRowLoss | kFeatureKl},
    // The same with decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kOldRollout,
     RatioSource::kCurrentOld,
     kFeatureLoss | kFeatureRules | kFeatureRowLoss | kFeatureKl},
};
inline constexpr int kNumShapes = sizeof(kShapes) / sizeof(kShapes[0]);
inline constexpr int kAnyPlan = -1;

// Plans with more rules have no shape.
inline constexpr int kMaxShapeRules = 3;

// Blocks that a multiprocessor is to hold at once, which bounds registers: more
// than these spill what the walk needs in each step.
constexpr int MinBlocks(int shape) {
  if (shape == kAnyPlan) return 4;
  return kShapes[shape].features == 0 ? 4 : 3;
}

// Index of the shape of `plan`, or kAnyPlan.
int ShapeOf(const Plan& plan);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
