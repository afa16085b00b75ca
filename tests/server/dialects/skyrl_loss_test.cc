// The specs of SkyRL's policy losses.
#include "server/engine/dialects/skyrl_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/engine/dialects/skyrl.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::KlEstimator;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Translation TranslateSkyrlLoss(const std::string& json,
                               const RequestFacts& facts = AllTensors()) {
  return TranslateSkyrl(Block(json), false, facts);
}

struct LossCase {
  const char* json;
  Surrogate surrogate;
  LossLevel level;
  RatioSource source;
  double log_ratio_upper;
  double clip_low, clip_high;
};

class SkyrlLossTest : public testing::TestWithParam<LossCase> {};

TEST_P(SkyrlLossTest, MapsToASurrogate) {
  const LossCase& expected = GetParam();
  const Translation t = TranslateSkyrlLoss(expected.json);
  EXPECT_THAT(Fields(t), IsEmpty());
  const LossSpec& loss = t.spec.loss;
  EXPECT_EQ(loss.surrogate, expected.surrogate);
  EXPECT_EQ(loss.level, expected.level);
  EXPECT_EQ(loss.source, expected.source);
  EXPECT_EQ(loss.log_ratio_upper, expected.log_ratio_upper);
  EXPECT_EQ(loss.clip_low, expected.clip_low);
  EXPECT_EQ(loss.clip_high, expected.clip_high);
  EXPECT_EQ(loss.over, kernels::TokenSet::kOriginal);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

constexpr double kNone = LossSpec::kNoBound;

INSTANTIATE_TEST_SUITE_P(
    All, SkyrlLossTest,
    testing::Values(
        LossCase{"{}", Surrogate::kPpoClip, LossLevel::kToken,
                 RatioSource::kCurrentOld, 20, 0.2, 0.2},
        LossCase{R"({"policy_loss_type": "gspo"})", Surrogate::kPpoClip,
                 LossLevel::kSequenceToken, RatioSource::kCurrentOld, 10, 0.2,
                 0.2},
        LossCase{R"({"policy_loss_type": "sapo"})", Surrogate::kSapo,
                 LossLevel::kToken, RatioSource::kCurrentOld, 20, kNone, kNone},
        LossCase{R"({"policy_loss_type": "cispo",
                     "cispo": {"cispo_anchor": "rollout"}})",
                 Surrogate::kCispo, LossLevel::kToken,
                 RatioSource::kCurrentRollout, 20, 1.0, 4.0},
        LossCase{R"({"policy_loss_type": "rollout_is", "eps_clip_low": 1.5})",
                 Surrogate::kRolloutIs, LossLevel::kToken,
                 RatioSource::kCurrentRollout, 20, 1.5, 0.2},
        LossCase{R"({"policy_loss_type": "dppo",
                     "dppo": {"dppo_type": "binary_kl", "delta_low": 0.05}})",
                 Surrogate::kDppoKl, LossLevel::kToken,
                 RatioSource::kCurrentRollout, 20, 0.05, 0.2},
        LossCase{R"({"policy_loss_type": "clip_cov"})", Surrogate::kClipCov,
                 LossLevel::kToken, RatioSource::kCurrentOld, kNone, 0.2, 0.2},
        LossCase{R"({"policy_loss_type": "kl_cov",
                     "kl_cov": {"kl_cov_frac": 0}})",
                 Surrogate::kKlCov, LossLevel::kToken, RatioSource::kCurrentOld,
                 kNone, kNone, kNone},
        LossCase{R"({"policy_loss_type": "importance_sampling"})",
                 Surrogate::kImportanceSampling, LossLevel::kToken,
                 RatioSource::kCurrentOld, kNone, kNone, kNone},
        LossCase{R"({"policy_loss_type": "cross_entropy"})",
                 Surrogate::kCrossEntropy, LossLevel::kToken,
                 RatioSource::kCurrentSelf, kNone, kNone, kNone}));

TEST(SkyrlTest, CrossEntropyNeedsNoOtherPolicy) {
  RequestFacts facts;
  facts.has_current_log_probs = true;
  facts.has_advantages = true;
  facts.wants_loss = true;
  facts.num_sequences = 3;
  const Translation t = TranslateSkyrlLoss(
      R"({"policy_loss_type": "cross_entropy", "use_kl_loss": true,
          "loss_reduction": "token_mean_legacy", "micro_batch_size": 2})",
      facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentSelf);
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kOne);
  EXPECT_EQ(t.spec.loss.kl.estimator, KlEstimator::kNone);
  // A row without a group would not enter the loss.
  EXPECT_THAT(t.groups, IsEmpty());
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("adds no KL penalty")));
}

TEST(SkyrlTest, LossesThatIgnoreTheCorrectionSaySo) {
  const Translation t = TranslateSkyrlLoss(
      R"({"policy_loss_type": "kl_cov", "off_policy_correction": {
          "outlier_token_is_threshold_high": 2}})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("does not apply it")));
}

TEST(SkyrlTest, RolloutLossesNeedNoOldLogProbs) {
  RequestFacts facts = AllTensors();
  facts.has_old_log_probs = false;
  const Translation t =
      TranslateSkyrlLoss(R"({"policy_loss_type": "rollout_is"})", facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.loss.metrics_source, RatioSource::kCurrentRollout);
}

TEST(SkyrlTest, PromptsAreGroups) {
  const Translation t = TranslateSkyrlLoss(
      R"({"loss_reduction": "prompt_mean",
          "prompt_boundaries": [[3, 5], [1, 1], [0, 2]]})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.groups, ElementsAre(2, 2, -1, 0, 0));
  EXPECT_EQ(t.num_groups, 3);
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kGroups);
  EXPECT_EQ(t.spec.loss.reduction.row, RowCount::kGroupTokens);
  // Row 2 has scaled advantages of 0, which clip nothing.
  EXPECT_TRUE(t.spec.loss.prescales_advantages);
}

TEST(SkyrlTest, GroupIdsStandForPrompts) {
  RequestFacts facts = AllTensors();
  facts.has_group_ids = true;
  const Translation t =
      TranslateSkyrlLoss(R"({"loss_reduction": "prompt_mean"})", facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_TRUE(t.uses_group_ids);
}

TEST(SkyrlTest, MicroBatchesLeaveTheTailOut) {
  const Translation t = TranslateSkyrlLoss(
      R"({"loss_reduction": "token_mean_legacy", "micro_batch_size": 2})");
  EXPECT_THAT(t.groups, ElementsAre(0, 0, 1, 1, -1));
  EXPECT_EQ(t.num_groups, 2);
}

TEST(SkyrlTest, SumsAreDividedByTheGivenLength) {
  const Translation t = TranslateSkyrlLoss(
      R"({"loss_reduction": "seq_mean_token_sum_norm", "max_seq_len": 8})");
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kRows);
  EXPECT_EQ(t.spec.loss.reduction.row, RowCount::kOne);
  EXPECT_EQ(t.spec.loss.reduction.scale, 0.125);
}

TEST(SkyrlTest, OnlyK3IsClamped) {
  const kernels::KlSpec k3 =
      TranslateSkyrlLoss(R"({"use_kl_loss": true})").spec.loss.kl;
  EXPECT_EQ(k3.estimator, KlEstimator::kK3);
  EXPECT_EQ(k3.coefficient, 0.001);
  EXPECT_EQ(k3.token_clamp, 20.0);
  EXPECT_EQ(k3.value_clamp, 10.0);
  const kernels::KlSpec k2 =
      TranslateSkyrlLoss(R"({"use_kl_loss": true, "kl_estimator_type": "k2"})")
          .spec.loss.kl;
  EXPECT_EQ(k2.token_clamp, kernels::kUnbounded);
  EXPECT_EQ(k2.value_clamp, kernels::kUnbounded);
  RequestFacts facts = AllTensors();
  facts.has_ref_log_probs = false;
  EXPECT_THAT(Fields(TranslateSkyrlLoss(R"({"use_kl_loss": true})", facts)),
              ElementsAre("tensors[REF_LOG_PROBS]"));
}

TEST(SkyrlTest, SequenceLossesWarnOfOtherReductions) {
  EXPECT_THAT(TranslateSkyrlLoss(R"({"policy_loss_type": "sapo"})").warnings,
              ElementsAre(HasSubstr("recommends")));
  EXPECT_THAT(TranslateSkyrlLoss(R"({"policy_loss_type": "gspo",
                            "loss_reduction": "sequence_mean"})")
                  .warnings,
              IsEmpty());
}

}  // namespace
}  // namespace counterweight::server
