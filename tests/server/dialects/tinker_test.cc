// Parts of Tinker's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/tinker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::LossLevel;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Translation TranslateTinkerBlock(const std::string& json,
                                 const RequestFacts& facts = AllTensors()) {
  return TranslateTinker(Block(json), false, facts);
}

TEST(TinkerTest, ThresholdsAreRatiosAndTheLossIsASum) {
  const Translation t = TranslateTinkerBlock(
      R"({"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": 0.75}})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings,
              testing::ElementsAre(testing::HasSubstr("old_log_probs was")));
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(t.spec.loss.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.loss.clip_low, 0.25);
  EXPECT_NEAR(t.spec.loss.clip_high, 0.2, 1e-15);
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kOne);
  EXPECT_EQ(t.spec.loss.reduction.row, RowCount::kOne);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(TinkerTest, GspoGivesEachTokenItsOwnGradient) {
  EXPECT_EQ(TranslateTinkerBlock(R"({"loss_fn": "gspo"})").spec.loss.level,
            LossLevel::kSequenceToken);
}

TEST(TinkerTest, Refusals) {
  constexpr Refusal kRefusals[] = {
      {"{}", "loss_fn"},
      {R"({"loss_fn": null})", "loss_fn"},
      {R"({"loss_fn": "stable_reinforce"})", "loss_fn"},
      {R"({"loss_fn": "ppo", "config": {}})", "config"},
      {R"({"loss_fn": "ppo", "loss_fn_config": 1})", "loss_fn_config"},
      {R"({"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": 1.1}})",
       "loss_fn_config.clip_low_threshold"},
      {R"({"loss_fn": "gspo", "loss_fn_config": {"clip_high_threshold": 0.9}})",
       "loss_fn_config.clip_high_threshold"},
      {R"({"loss_fn": "cispo",
           "loss_fn_config": {"clip_low_threshold": 0}})",
       "loss_fn_config.clip_high_threshold"},
      {R"({"loss_fn": "dro"})", "loss_fn_config.beta"},
      {R"({"loss_fn": "dro", "loss_fn_config": {"beta": 0}})",
       "loss_fn_config.beta"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Fields(TranslateTinkerBlock(refusal.json)),
                ElementsAre(refusal.field))
        << refusal.json;
  }
}

TEST(TinkerTest, AnUnknownKeyIsAnsweredWithTheLosssOwn) {
  const Translation t = TranslateTinkerBlock(
      R"({"loss_fn": "ppo", "loss_fn_config": {"beta": 1}})");
  ASSERT_EQ(t.violations.size(), 1U);
  EXPECT_THAT(t.violations[0].description,
              HasSubstr("loss_fn 'ppo' takes clip_low_threshold, "
                        "clip_high_threshold"));
}

TEST(TinkerTest, NeedsItsTensors) {
  RequestFacts facts = AllTensors();
  facts.has_rollout_log_probs = false;
  EXPECT_THAT(Fields(TranslateTinkerBlock(R"({"loss_fn": "ppo"})", facts)),
              ElementsAre("tensors[ROLLOUT_LOG_PROBS]"));
}

}  // namespace
}  // namespace counterweight::server
