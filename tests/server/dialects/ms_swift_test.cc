// Parts of ms-swift's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/ms_swift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/log_ratio.h"
#include "server/engine/names.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Bound;
using kernels::Effect;
using kernels::Level;
using kernels::LogRatio;
using kernels::LossReduction;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Translation MsSwift(const std::string& json,
                    const RequestFacts& facts = AllTensors()) {
  return TranslateMsSwift(Block(json), false, facts);
}

TEST(MsSwiftTest, EmptyBlockIsGrpoWithAKlPenaltyAndWithoutCorrection) {
  const Translation t = MsSwift("{}");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("rollout_log_probs was sent")));
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(t.spec.loss.clip_high, 0.2);
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kRows);
  EXPECT_EQ(t.spec.loss.reduction.row, RowCount::kKeptTokens);
  EXPECT_EQ(t.spec.loss.kl.coefficient, 0.04);
  EXPECT_FALSE(t.spec.loss.kl.has_weight);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(MsSwiftTest, TheKlPenaltyHasTheWeight) {
  const Translation t =
      MsSwift(R"({"rollout_importance_sampling_mode": "token_truncate"})");
  EXPECT_TRUE(t.spec.loss.kl.has_weight);
  EXPECT_EQ(t.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(t.spec.weight.upper, 2.0);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(MsSwiftTest, SequenceMeansTheGeometricMean) {
  const Translation truncated =
      MsSwift(R"({"rollout_importance_sampling_mode": "sequence_truncate"})");
  EXPECT_EQ(truncated.spec.weight.level, Level::kGeometric);
  const Translation masked =
      MsSwift(R"({"rollout_importance_sampling_mode": "sequence_mask",
                  "rollout_importance_sampling_threshold": 3})");
  EXPECT_EQ(masked.spec.weight.level, Level::kToken);
  EXPECT_EQ(masked.spec.weight.bound, Bound::kNone);
  ASSERT_EQ(masked.spec.num_rules, 1);
  EXPECT_EQ(masked.spec.rules[0].aggregation, Aggregation::kMean);
  EXPECT_EQ(masked.spec.rules[0].effect, Effect::kZeroWeight);
  EXPECT_EQ(masked.spec.rules[0].upper, LogRatio(3.0));
  EXPECT_THAT(kernels::Validate(masked.spec), IsEmpty());
}

TEST(MsSwiftTest, WithoutRolloutLogProbsNothingIsCorrected) {
  RequestFacts facts = AllTensors();
  facts.has_rollout_log_probs = false;
  const Translation t =
      MsSwift(R"({"rollout_importance_sampling_mode": "token_mask"})", facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, Contains(HasSubstr("does nothing without rollout")));
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_FALSE(t.spec.loss.kl.has_weight);
}

TEST(MsSwiftTest, OpsmComparesWithRolloutElseWithOld) {
  const std::string json = R"({"off_policy_sequence_mask_delta": 0.25})";
  RequestFacts facts = AllTensors();
  EXPECT_EQ(MsSwift(json, facts).spec.rules[0].source,
            RatioSource::kCurrentRollout);
  EXPECT_EQ(MsSwift(json, facts).spec.rules[0].lower, -0.25);
  EXPECT_TRUE(MsSwift(json, facts).report_judges);
  facts.has_rollout_log_probs = false;
  EXPECT_EQ(MsSwift(json, facts).spec.rules[0].source,
            RatioSource::kCurrentOld);
  facts.has_old_log_probs = false;
  EXPECT_EQ(MsSwift(json, facts).spec.num_rules, 0);
  EXPECT_THAT(MsSwift(json, facts).warnings,
              Contains(HasSubstr("does nothing")));
}

TEST(MsSwiftTest, DivisorsFollowTypeAndBackend) {
  const auto reduction = [](const std::string& fields) {
    return MsSwift(Concat(R"({"beta": 0, )", fields, "}")).spec.loss.reduction;
  };
  EXPECT_EQ(reduction(R"("loss_type": "bnpo")"),
            (LossReduction{BatchCount::kKeptTokens, RowCount::kOne, 1.0}));
  EXPECT_EQ(reduction(R"("loss_type": "dr_grpo", "max_completion_length": 8)"),
            (LossReduction{BatchCount::kRows, RowCount::kOne, 0.125}));
  EXPECT_EQ(reduction(R"("loss_type": "dapo",
                         "gradient_accumulation_steps": 4)"),
            (LossReduction{BatchCount::kTokens, RowCount::kOne, 4.0}));
  const std::string given = R"("num_items_in_batch": 32, "dp_size": 2,
      "gradient_accumulation_steps": 4, "num_microbatches": 3)";
  EXPECT_EQ(reduction(Concat(R"("loss_type": "dapo", )", given)),
            (LossReduction{BatchCount::kOne, RowCount::kOne, 0.125}));
  for (const char* type : {"dapo", "cispo", "bnpo"}) {
    EXPECT_EQ(reduction(Concat(R"("backend": "megatron", "loss_type": ")", type,
                               R"(", )", given)),
              (LossReduction{BatchCount::kOne, RowCount::kOne, 3.0 / 16}))
        << type;
  }
}

TEST(MsSwiftTest, CisposEpsilonHighIsTheCap) {
  const Translation t = MsSwift(R"({"loss_type": "cispo", "epsilon_high": 4})");
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kCispo);
  EXPECT_EQ(t.spec.loss.clip_low, 1.0);
  EXPECT_EQ(t.spec.loss.clip_high, 3.0);
  EXPECT_THAT(MsSwift(R"({"loss_type": "cispo"})").warnings,
              Contains(HasSubstr("caps even the ratio 1")));
  EXPECT_THAT(kernels::Validate(MsSwift(R"({"loss_type": "cispo"})").spec),
              IsEmpty());
}

TEST(MsSwiftTest, Refusals) {
  constexpr Refusal kRefusals[] = {
      {R"({"epsilon_low": 0.2})", "epsilon_low"},
      {R"({"epsilon": -0.1})", "epsilon"},
      {R"({"delta": 0})", "delta"},
      {R"({"loss_type": "real"})", "loss_type"},
      {R"({"loss_type": "fipo"})", "loss_type"},
      {R"({"loss_type": "grpoo"})", "loss_type"},
      {R"({"importance_sampling_level": "row"})", "importance_sampling_level"},
      {R"({"rollout_importance_sampling_mode": "token"})",
       "rollout_importance_sampling_mode"},
      {R"({"rollout_importance_sampling_threshold": 0})",
       "rollout_importance_sampling_threshold"},
      {R"({"off_policy_sequence_mask_delta": -1})",
       "off_policy_sequence_mask_delta"},
      {R"({"beta": -1})", "beta"},
      {R"({"backend": "fsdp"})", "backend"},
      {R"({"backend": "megatron", "loss_type": "dapo"})", "num_items_in_batch"},
      {R"({"loss_type": "dr_grpo", "max_completion_length": 0})",
       "max_completion_length"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Fields(MsSwift(refusal.json)), ElementsAre(refusal.field))
        << refusal.json;
  }
}

TEST(MsSwiftTest, TheDefaultBetaNeedsTheReference) {
  RequestFacts facts = AllTensors();
  facts.has_ref_log_probs = false;
  EXPECT_THAT(Fields(MsSwift("{}", facts)),
              ElementsAre("tensors[REF_LOG_PROBS]"));
  EXPECT_THAT(Fields(MsSwift(R"({"beta": 0})", facts)), IsEmpty());
}

}  // namespace
}  // namespace counterweight::server
