// Parts of SkyRL's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/skyrl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/block_reader.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/reference.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::Bound;
using kernels::Level;
using kernels::LogRatio;
using kernels::RatioSource;
using kernels::Surrogate;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

RequestFacts WithoutLoss() {
  RequestFacts facts = AllTensors();
  facts.wants_loss = false;
  return facts;
}

RequestFacts WithoutRollout() {
  RequestFacts facts = AllTensors();
  facts.has_rollout_log_probs = false;
  return facts;
}

Translation TranslateSkyrlBlock(const std::string& json,
                                const RequestFacts& facts = AllTensors()) {
  return TranslateSkyrl(Block(json), false, facts);
}

TEST(SkyrlTest, EmptyBlockCorrectsNothing) {
  const Translation t = TranslateSkyrlBlock("{}", WithoutLoss());
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kNone);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kOldRollout);
}

TEST(SkyrlTest, StepsFollowEachOther) {
  const Translation t = TranslateSkyrlBlock(R"({"off_policy_correction": {
      "tis_ratio_type": "sequence", "sequence_mask_metric": "product",
      "outlier_token_is_threshold_high": 100,
      "token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 3
  }})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.rule_names, ElementsAre("outlier_seq", "token_mask",
                                        "product_sequence_mask"));
  EXPECT_EQ(t.spec.evaluation, kernels::Evaluation::kSequential);
  ASSERT_EQ(t.spec.num_rules, 3);
  const kernels::RejectionRule* rules = t.spec.rules;
  EXPECT_EQ(rules[0].aggregation, Aggregation::kAll);
  EXPECT_EQ(rules[0].upper, LogRatio(100.0));
  EXPECT_EQ(rules[0].lower, -20.0);
  EXPECT_EQ(rules[0].token_clamp, 20.0);
  EXPECT_EQ(rules[1].aggregation, Aggregation::kToken);
  EXPECT_EQ(rules[1].lower, LogRatio(0.5));
  EXPECT_EQ(rules[1].upper, LogRatio(3.0));
  EXPECT_EQ(rules[2].aggregation, Aggregation::kSum);
  EXPECT_EQ(rules[2].lower, LogRatio(0.5));
  EXPECT_EQ(rules[2].upper, LogRatio(2.0));
  EXPECT_EQ(rules[2].token_clamp, kernels::kUnbounded);
  EXPECT_EQ(rules[2].aggregate_clamp, 20.0);
  EXPECT_NE(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.weight.level, Level::kSequence);
  EXPECT_EQ(t.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(t.spec.weight.upper, 5.0);
  EXPECT_EQ(t.spec.weight.lower, 0.0);
  EXPECT_EQ(t.spec.weight.aggregate_clamp, 20.0);
  EXPECT_EQ(t.spec.weight.after_rule, 2);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

// Ratios are clamped to exp(-20) and exp(20) in float32, so that a bound beyond
// rejects nothing, not even clamped ratios.
TEST(SkyrlTest, BoundsBeyondTheClampRejectNothing) {
  for (const char* bounds : {"1e-12", "2e-9"}) {
    const std::string json = Concat(
        R"({"off_policy_correction": {
            "outlier_token_is_threshold_high": 485165184,
            "outlier_token_is_threshold_low": )",
        bounds, "}}");
    const Translation t = TranslateSkyrlBlock(json, WithoutLoss());
    ASSERT_EQ(t.spec.num_rules, 1);
    const kernels::OwnedBatch batch(
        std::vector<kernels::Row>{kernels::RowOf({-25.0f, 25.0f})});
    const kernels::BatchSums sums =
        kernels::Reference(t.spec, batch.view()).sums;
    EXPECT_EQ(sums.kept_tokens, 2) << bounds;
  }
}

TEST(SkyrlTest, OneTokenThresholdAloneIsWarnedOf) {
  const Translation t = TranslateSkyrlBlock(
      R"({"off_policy_correction": {"token_mask_is_threshold_low": 0.5}})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("does nothing alone")));
}

TEST(SkyrlTest, DeprecatedTisNeedsACap) {
  const Translation t = TranslateSkyrlBlock(
      R"({"use_tis": true, "tis_imp_ratio_cap": 3,
          "off_policy_correction": {"tis_ratio_type": "sequence"}})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kToken);
  EXPECT_EQ(t.spec.weight.upper, 3.0);
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("deprecated")));
  // The default cap of -1 would flip the sign of every gradient.
  EXPECT_THAT(Fields(TranslateSkyrlBlock(R"({"use_tis": true})")),
              ElementsAre("tis_imp_ratio_cap"));
}

TEST(SkyrlTest, BlockWithoutRolloutLogProbs) {
  const std::string json =
      R"({"off_policy_correction": {"tis_ratio_type": "token"}})";
  const Translation uncorrected = TranslateSkyrlBlock(json, WithoutRollout());
  EXPECT_THAT(Fields(uncorrected), IsEmpty());
  EXPECT_EQ(uncorrected.spec.weight.level, Level::kNone);
  EXPECT_EQ(uncorrected.spec.drift_source, RatioSource::kCurrentOld);
  EXPECT_THAT(uncorrected.warnings, ElementsAre(HasSubstr("goes uncorrected")));
  // A request for weights alone then selects nothing.
  RequestFacts facts = WithoutLoss();
  facts.has_rollout_log_probs = false;
  EXPECT_THAT(Fields(TranslateSkyrlBlock(json, facts)),
              ElementsAre("tensors[ROLLOUT_LOG_PROBS]"));
}

class SkyrlRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(SkyrlRefusalTest, BlamesTheField) {
  EXPECT_THAT(Fields(TranslateSkyrlBlock(GetParam().json)),
              ElementsAre(GetParam().field));
}

INSTANTIATE_TEST_SUITE_P(
    All, SkyrlRefusalTest,
    testing::Values(
        Refusal{R"({"policy_loss_typ": "gspo"})", "policy_loss_typ"},
        Refusal{R"({"policy_loss_type": null})", "policy_loss_type"},
        Refusal{R"({"sapo": {"tau": 1}})", "sapo.tau"},
        Refusal{R"({"sapo": 1})", "sapo"},
        Refusal{R"({"policy_loss_type": "sapo", "sapo": {"tau_pos": 0}})",
                "sapo.tau_pos"},
        Refusal{R"({"use_entropy_loss": true})", "use_entropy_loss"},
        Refusal{R"({"eps_clip_low": "0.2"})", "eps_clip_low"},
        Refusal{R"({"eps_clip_high": -0.1})", "eps_clip_high"},
        Refusal{R"({"policy_loss_type": "dual_clip", "clip_ratio_c": 1})",
                "clip_ratio_c"},
        Refusal{R"({"policy_loss_type": "clip_cov",
                    "clip_cov": {"clip_cov_lb": 6}})",
                "clip_cov.clip_cov_lb"},
        Refusal{R"({"policy_loss_type": "kl_cov",
                    "kl_cov": {"kl_cov_frac": 1.5}})",
                "kl_cov.kl_cov_frac"},
        Refusal{R"({"policy_loss_type": "cispo", "use_tis": true,
                    "tis_imp_ratio_cap": 2,
                    "cispo": {"cispo_anchor": "rollout"}})",
                "use_tis"},
        Refusal{R"({"use_kl_loss": true, "kl_loss_coef": -1})", "kl_loss_coef"},
        Refusal{R"({"off_policy_correction": [1]})", "off_policy_correction"},
        Refusal{R"({"off_policy_correction": {"tis_ratio_type": "token",
                    "token_tis_ratio_clip_high": 0}})",
                "off_policy_correction.token_tis_ratio_clip_high"},
        Refusal{R"({"off_policy_correction": {
                    "outlier_token_is_threshold_low": 2,
                    "outlier_token_is_threshold_high": 1}})",
                "off_policy_correction.outlier_token_is_threshold_low"},
        Refusal{R"({"off_policy_correction": {
                    "outlier_token_is_threshold_high": 0}})",
                "off_policy_correction.outlier_token_is_threshold_high"},
        Refusal{R"({"off_policy_correction": {
                    "outlier_token_is_threshold_low": 1e9}})",
                "off_policy_correction.outlier_token_is_threshold_low"},
        Refusal{R"({"off_policy_correction": {
                    "sequence_mask_metric": "geometric", "geo_mask_low": 1.1}})",
                "off_policy_correction.geo_mask_low"},
        Refusal{R"({"loss_reduction": "seq_mean_token_sum_norm",
                    "max_seq_len": 0})",
                "max_seq_len"},
        Refusal{R"({"loss_reduction": "token_mean_legacy"})",
                "micro_batch_size"},
        Refusal{R"({"loss_reduction": "token_mean_legacy",
                    "micro_batch_size": 6})",
                "micro_batch_size"},
        Refusal{R"({"loss_reduction": "prompt_mean",
                    "prompt_boundaries": []})",
                "prompt_boundaries"},
        Refusal{R"({"loss_reduction": "prompt_mean",
                    "prompt_boundaries": [[0, 2], [2, 6]]})",
                "prompt_boundaries[1]"},
        Refusal{R"({"loss_reduction": "prompt_mean",
                    "prompt_boundaries": [[0, 1.5]]})",
                "prompt_boundaries[0]"},
        Refusal{R"({"loss_reduction": "prompt_mean",
                    "prompt_boundaries": [[0, 2], [1, 3]]})",
                "prompt_boundaries[1]"}));

TEST(SkyrlTest, AllViolationsAtOnce) {
  const Translation t = TranslateSkyrlBlock(
      R"({"use_entropy_loss": true, "loss_reduction": "mean",
                    "cispo": {"cispo_eps": 1}, "policy_loss_type": "regular",
                    "eps_clip_low": -1,
                    "off_policy_correction": {"tis_ratio_type": "both"}})",
      RequestFacts{.wants_loss = true});
  EXPECT_THAT(Fields(t),
              UnorderedElementsAre(
                  "use_entropy_loss", "loss_reduction", "cispo.cispo_eps",
                  "eps_clip_low", "off_policy_correction.tis_ratio_type",
                  "tensors[CURRENT_LOG_PROBS]", "tensors[OLD_LOG_PROBS]",
                  "tensors[ADVANTAGES]"));
}

TEST(SkyrlTest, FieldsWithoutAPartAreTaken) {
  const Translation t = TranslateSkyrlBlock(
      R"({"advantage_estimator": "grpo", "grpo_norm_by_std": false,
          "kl_ctrl": {"type": "fixed"}, "value_clip": 0.2})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, IsEmpty());
}

}  // namespace
}  // namespace counterweight::server
