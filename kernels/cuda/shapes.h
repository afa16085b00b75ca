// Kinds of plans that have walks of their own. A walk for any plan keeps its
// tiles in memory, because which tile a phase reads is known only when it runs;
// one for plans of a kind keeps them in registers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
#define COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/plan/needs.h"
#include "kernels/plan/plan.h"

namespace counterweight::kernels {

struct Shape {
  RatioSource drift;  // of weights and rules too
  RatioSource loss;   // of its metrics too
  // Needs that a plan may have, beside kNeedTokens, and those that it must.
  Needs needs;
  Needs always;
};

// All needs of weights and rules of one ratio except running means, with
// metrics and reasons or without.
inline constexpr Needs kAnyWeights =
    kNeedMetrics | kNeedTokenWeights | kNeedRowWeights | kNeedVanishing |
    kNeedOwnRatio | kNeedLateWeights | kNeedReasons;
inline constexpr Needs kAnyRules = kNeedRules | kNeedTokenHits | kNeedZeroing |
                                   kNeedSequential | kNeedConditions;
inline constexpr Needs kCorrections = kAnyWeights | kAnyRules;
inline constexpr Needs kTruncated = kNeedTokenWeights | kNeedMetrics;
inline constexpr Needs kRowLoss =
    kNeedLoss | kNeedPeerLoss | kAnyRowLoss | kNeedKl;
inline constexpr Needs kAnyLoss = kRowLoss | kNeedSurrogates | kNeedReinforce;

// The first shape that fits is used: the leanest are first.
inline constexpr Shape kShapes[] = {
    // Truncated weights of the drift's ratio, without metrics: TIS.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kNeedTokenWeights,
     kNeedTokenWeights},
    // With metrics.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kTruncated,
     kTruncated},
    // With metrics and rules.
    {RatioSource::kOldRollout, RatioSource::kOldRollout,
     kTruncated | kNeedRules | kNeedTokenHits, kTruncated | kNeedRules},
    // Weights alone: MIS, IcePop.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kAnyWeights, 0},
    // With rules: decoupled corrections.
    {RatioSource::kOldRollout, RatioSource::kOldRollout, kCorrections, 0},
    // The same in bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout, kCorrections,
     0},
    // PPO on its own, without metrics.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld, kNeedLoss, kNeedLoss},
    // With metrics.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     kNeedLoss | kNeedMetrics, kNeedLoss | kNeedMetrics},
    // PPO with decoupled truncated weights.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld, kTruncated | kNeedLoss,
     kNeedTokenWeights | kNeedLoss},
    // PPO with decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kNeedLoss | kNeedPeerLoss | kCorrections, kNeedLoss},
    // PPO and REINFORCE in bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout,
     kNeedLoss | kNeedPeerLoss | kCorrections | kNeedReinforce, kNeedLoss},
    // GRPO and GSPO, with a KL penalty or without, on their own.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     kRowLoss | kNeedMetrics | kNeedReasons, 0},
    // The same with decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kRowLoss | kCorrections, 0},
    // Any surrogate on its own.
    {RatioSource::kCurrentOld, RatioSource::kCurrentOld,
     kAnyLoss | kNeedMetrics | kNeedReasons, kNeedLoss},
    // With decoupled weights and rules.
    {RatioSource::kOldRollout, RatioSource::kCurrentOld,
     kAnyLoss | kCorrections, kNeedLoss},
    // In bypass mode.
    {RatioSource::kCurrentRollout, RatioSource::kCurrentRollout,
     kAnyLoss | kCorrections, kNeedLoss},
};
inline constexpr int kNumShapes = sizeof(kShapes) / sizeof(kShapes[0]);
inline constexpr int kAnyPlan = -1;

// Plans with more rules have no shape.
inline constexpr int kMaxShapeRules = 3;

// Shapes that were measured on an H100 (tests/benchmark/history.md); the others
// follow the rule that no walk spills what it needs in each step.
constexpr bool IsPpoAlone(const Shape& shape) {
  return (shape.needs & ~(kNeedLoss | kNeedMetrics)) == 0;
}
constexpr bool HasRulesAlways(const Shape& shape) {
  return (shape.always & kNeedRules) != 0;
}

// Blocks that a multiprocessor is to hold at once, which bounds registers.
constexpr int MinBlocks(int shape) {
  if (shape == kAnyPlan) return 4;
  constexpr Needs kHeavy = kNeedRules | kNeedLoss;
  const Shape& of = kShapes[shape];
  const bool is_heavy = (of.needs & kHeavy) != 0;
  return is_heavy && !IsPpoAlone(of) && !HasRulesAlways(of) ? 3 : 4;
}

// Steps that a walk looks at together: one, as registers are short. Walks with
// rules test each property of a rule that much less often, and a loss without
// metrics has registers left for more in flight.
constexpr int StepsTogether(const Shape& shape) {
  constexpr int kBlock = 8;  // kSteps
  if (HasRulesAlways(shape)) return kBlock;
  if ((shape.needs & kNeedLoss) != 0) {
    return shape.needs == kNeedLoss ? kBlock / 2 : 1;
  }
  return (shape.needs & kNeedRules) != 0 ? 2 : 1;
}

// Index of the shape of `plan` where these outputs are wanted, or kAnyPlan.
int ShapeOf(const Plan& plan, const Outputs& outputs);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_SHAPES_H_
