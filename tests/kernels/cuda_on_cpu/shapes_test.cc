// Plans with walks of their own, and the shared memory of a walk.
#include "kernels/cuda/shapes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/column_layout.h"
#include "kernels/cuda/grid.h"
#include "kernels/methods.h"
#include "kernels/walk/make_plan.h"
#include "tests/testing/loss_specs.h"

namespace counterweight::kernels {
namespace {

Plan PlanOf(const Method& method) {
  std::vector<ParameterViolation> violations;
  return MakePlan(MakeSpec(method, {}, &violations));
}

TEST(Shapes, TheMethodsThatGoTheLongWayAreKnown) {
  std::set<std::string> without;
  for (const Method& method : Methods()) {
    if (ShapeOf(PlanOf(method), {}) == kAnyPlan) {
      without.insert(std::string(method.name));
    }
  }
  EXPECT_EQ(without,
            (std::set<std::string>{"clip_cov", "kl_cov", "reinforce_pro"}));
}

CorrectionSpec TruncatedWeights() {
  std::vector<ParameterViolation> violations;
  return MakeSpec(*FindMethod("token_tis"), {}, &violations);
}

// Returns the walk that writes all outputs.
Needs WalkOf(const CorrectionSpec& spec) {
  return kShapes[ShapeOf(MakePlan(spec), {})].needs;
}

TEST(Shapes, LeanPlansGetLeanWalks) {
  CorrectionSpec spec = TruncatedWeights();
  EXPECT_EQ(WalkOf(spec), kTruncated);
  spec.metrics = false;
  EXPECT_EQ(WalkOf(spec), kNeedTokenWeights);
  spec.metrics = true;
  spec.num_rules = 1;
  EXPECT_EQ(WalkOf(spec), kTruncated | kNeedRules | kNeedTokenHits);
  spec.num_rules = kMaxShapeRules;
  EXPECT_EQ(WalkOf(spec), kTruncated | kNeedRules | kNeedTokenHits);
  spec.num_rules = kMaxShapeRules + 1;
  EXPECT_EQ(ShapeOf(MakePlan(spec), {}), kAnyPlan);
  spec.num_rules = 1;
  spec.rules[0].source = RatioSource::kCurrentOld;
  EXPECT_EQ(ShapeOf(MakePlan(spec), {}), kAnyPlan);
}

TEST(Shapes, TruncatedWeightsOfPpoGetALeanWalk) {
  std::vector<ParameterViolation> violations;
  CorrectionSpec spec =
      MakeSpec(*FindMethod("token_tis_ppo_clip"), {}, &violations);
  constexpr Needs kLean = kTruncated | kNeedLoss;
  EXPECT_EQ(WalkOf(spec), kLean);
  spec.metrics = false;
  EXPECT_EQ(WalkOf(spec), kLean);
  spec.weight.bound = Bound::kMask;
  EXPECT_EQ(WalkOf(spec), kNeedLoss | kNeedPeerLoss | kCorrections);
  spec.loss.surrogate = Surrogate::kCispo;
  EXPECT_EQ(WalkOf(spec), kAnyLoss | kCorrections);
}

TEST(Shapes, WhatALeanWalkIsWithoutGoesToAnother) {
  CorrectionSpec masking = TruncatedWeights();
  masking.weight.bound = Bound::kMask;
  EXPECT_EQ(WalkOf(masking), kAnyWeights);
  CorrectionSpec unclamped = TruncatedWeights();
  unclamped.weight.token_clamp = kUnbounded;
  EXPECT_EQ(WalkOf(unclamped), kAnyWeights);
  CorrectionSpec zeroing = TruncatedWeights();
  zeroing.num_rules = 1;
  zeroing.rules[0].effect = Effect::kZeroWeight;
  EXPECT_EQ(WalkOf(zeroing), kCorrections);
  std::vector<uint16_t> reasons(1);
  Outputs outputs;
  outputs.token_reasons = reasons.data();
  EXPECT_EQ(kShapes[ShapeOf(MakePlan(TruncatedWeights()), outputs)].needs,
            kAnyWeights);
}

// Every request of TRL names them.
TEST(Shapes, UnknownTokensCostNoWalkUnlessTwoRatiosReadThem) {
  std::vector<ParameterViolation> violations;
  CorrectionSpec spec =
      MakeSpec(*FindMethod("token_tis_ppo_clip"), {}, &violations);
  spec.unknown_rollout = true;
  EXPECT_EQ(WalkOf(spec), kTruncated | kNeedLoss);
  spec.num_rules = 1;
  spec.rules[0].source = RatioSource::kCurrentRollout;
  EXPECT_EQ(ShapeOf(MakePlan(spec), {}), kAnyPlan);
}

TEST(ColumnLayout, EachColumnHasAPlaceOfItsOwn) {
  for (const Method& method : Methods()) {
    const ColumnLayout layout = MakeColumnLayout(PlanOf(method), true, true);
    std::set<int> sums;
    std::set<int> counts;
    for (int c = 0; c < kNumColumns; ++c) {
      if (layout.offset[c] == 0) continue;
      EXPECT_EQ(layout.offset[c] % kColumnStride, 0);
      EXPECT_TRUE((IsCount(c) ? counts : sums).insert(layout.offset[c]).second)
          << method.name << ", column " << c;
    }
    EXPECT_EQ(static_cast<int>(sums.size()), layout.num_sums);
    EXPECT_EQ(static_cast<int>(counts.size()), layout.num_counts);
  }
}

TEST(ColumnLayout, ColumnsLieWhereCompiledCodeExpectsThem) {
  const KnownOffsets with_weights = MakeKnownOffsets(true);
  const KnownOffsets without = MakeKnownOffsets(false);
  int known_columns = 0;
  for (const Method& method : Methods()) {
    const Plan plan = PlanOf(method);
    const bool by_token = plan.weight.spec.level == Level::kToken;
    const ColumnLayout layout = MakeColumnLayout(plan, true, true);
    for (int c = 0; c < kNumColumns; ++c) {
      const int known = (by_token ? with_weights : without).offset[c];
      if (known == 0 || layout.offset[c] == 0) continue;
      EXPECT_EQ(layout.offset[c], known) << method.name << ", column " << c;
      ++known_columns;
    }
  }
  EXPECT_GT(known_columns, 18 * static_cast<int>(Methods().size()));
}

// One warp's columns, on every device: see LaunchWalk.
TEST(ColumnLayout, TheLargestPlanFitsIntoABlock) {
  CorrectionSpec spec = WithLoss(BusyLoss(Surrogate::kPpoClip, 0.1));
  spec.num_rules = kMaxRules;
  for (RejectionRule& rule : spec.rules) {
    rule.aggregation = Aggregation::kPrefixMean;
  }
  spec.weight.level = Level::kPrefix;
  spec.peer_sums = true;
  const ColumnLayout layout = MakeColumnLayout(MakePlan(spec), true, true);
  EXPECT_LE(layout.bytes, 48 << 10);
  // All warps of a block on compute capability 9.0.
  EXPECT_LE(layout.bytes * kWarps, 227 << 10);
}

}  // namespace
}  // namespace counterweight::kernels
