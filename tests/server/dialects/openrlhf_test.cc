// Parts of OpenRLHF's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/openrlhf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/openrlhf_metrics.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Bound;
using kernels::Effect;
using kernels::kUnbounded;
using kernels::Level;
using kernels::LogRatio;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// The fields of enable_vllm_is_correction.
RequestFacts Old(RequestFacts facts = AllTensors()) {
  facts.asked = {.release = {0, 11, 0}, .is_named = true};
  return facts;
}

Translation TranslateOpenrlhfBlock(const std::string& json,
                                   const RequestFacts& facts = Old()) {
  return TranslateOpenrlhf(Block(json), false, facts);
}

// `type` with correction enabled and the given threshold.
Translation TranslateCorrection(const std::string& type,
                                const std::string& threshold) {
  return TranslateOpenrlhfBlock(R"({"enable_vllm_is_correction": true,
                       "vllm_is_correction_type": ")" +
                                type + R"(", "vllm_is_truncated_threshold": )" +
                                threshold + "}");
}

TEST(OpenrlhfTest, DefaultIsPpoByToken) {
  const Translation t = TranslateOpenrlhfBlock("{}");
  EXPECT_THAT(Fields(t), IsEmpty());
  // Rollout log-probs are there, and nothing is corrected by them.
  EXPECT_THAT(t.warnings,
              ElementsAre(HasSubstr("enable_vllm_is_correction is off")));
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  const LossSpec& loss = t.spec.loss;
  EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(loss.level, LossLevel::kToken);
  EXPECT_EQ(loss.source, RatioSource::kCurrentOld);
  EXPECT_EQ(loss.log_ratio_lower, -20.0);
  EXPECT_EQ(loss.log_ratio_upper, 20.0);
  EXPECT_EQ(loss.clip_low, 0.2);
  EXPECT_EQ(loss.clip_high, 0.2);
  EXPECT_EQ(loss.dual_clip, LossSpec::kNoBound);
  EXPECT_EQ(loss.reduction.count, BatchCount::kTokens);
  EXPECT_EQ(loss.reduction.row, RowCount::kOne);
  EXPECT_TRUE(t.empty_loss_is_nan);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(OpenrlhfTest, WithoutLossOnlyTheCorrectionIsTranslated) {
  RequestFacts facts;
  facts.has_old_log_probs = true;
  facts.has_rollout_log_probs = true;
  const Translation t = TranslateOpenrlhf(
      Block(R"({"enable_vllm_is_correction": true})"), false, Old(facts));
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_NE(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kNone);
  EXPECT_FALSE(t.empty_loss_is_nan);
}

TEST(OpenrlhfTest, TokenCorrectionsBoundTheWeight) {
  const Translation tis = TranslateCorrection("tis", "[0.5, 2]");
  EXPECT_THAT(Fields(tis), IsEmpty());
  EXPECT_EQ(tis.spec.weight.level, Level::kToken);
  EXPECT_EQ(tis.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(tis.spec.weight.lower, 0.5);
  EXPECT_EQ(tis.spec.weight.upper, 2.0);
  EXPECT_EQ(tis.spec.weight.token_clamp, kUnbounded);
  EXPECT_EQ(tis.spec.num_rules, 0);
  const Translation icepop = TranslateCorrection("icepop", "[-1, 2]");
  EXPECT_EQ(icepop.spec.weight.bound, Bound::kMask);
  EXPECT_EQ(icepop.spec.weight.lower, 0.0);
}

TEST(OpenrlhfTest, RowCorrectionsZeroUnboundedWeights) {
  const Translation t = TranslateCorrection("seq-mask-tis", "[0.5, 2]");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.weight.bound, Bound::kNone);
  ASSERT_EQ(t.spec.num_rules, 1);
  EXPECT_EQ(t.spec.rules[0].aggregation, Aggregation::kMean);
  EXPECT_EQ(t.spec.rules[0].effect, Effect::kZeroWeight);
  EXPECT_EQ(t.spec.rules[0].lower, LogRatio(0.5));
  EXPECT_EQ(t.spec.rules[0].upper, LogRatio(2.0));
  EXPECT_EQ(t.spec.rules[0].token_clamp, kUnbounded);
  EXPECT_THAT(t.rule_names, ElementsAre("seq-mask-tis"));
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  EXPECT_EQ(
      TranslateCorrection("reinforce_pro", "[0, 2]").spec.rules[0].aggregation,
      Aggregation::kPrefixMean);
}

// JSON has no infinity, but a client's struct may have one.
TEST(OpenrlhfTest, UnboundedThresholdBoundsNothing) {
  for (const char* type : {"tis", "icepop", "seq-mask-tis"}) {
    google::protobuf::Struct block = Block(
        R"({"enable_vllm_is_correction": true,
            "vllm_is_truncated_threshold": [0, 1]})");
    auto& fields = *block.mutable_fields();
    fields["vllm_is_correction_type"] = String(type);
    *fields["vllm_is_truncated_threshold"].mutable_list_value()->mutable_values(
        1) = Number(kUnbounded);
    const Translation t = TranslateOpenrlhf(block, false, Old());
    EXPECT_THAT(Fields(t), IsEmpty()) << type;
    EXPECT_EQ(t.spec.weight.bound, Bound::kNone) << type;
    EXPECT_EQ(t.spec.num_rules, 0) << type;
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty()) << type;
  }
}

TEST(OpenrlhfTest, GspoTakesTheRolloutRatioInsteadOfWeights) {
  const Translation t = TranslateOpenrlhfBlock(
      R"({"policy_loss_type": "gspo", "enable_vllm_is_correction": true,
          "vllm_is_truncated_threshold": "junk", "token_level_loss": true})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  const LossSpec& loss = t.spec.loss;
  EXPECT_EQ(loss.level, LossLevel::kSequence);
  EXPECT_EQ(loss.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(loss.metrics_source, RatioSource::kCurrentOld);
  EXPECT_EQ(loss.log_ratio_upper, LossSpec::kNoBound);
  EXPECT_EQ(loss.reduction.count, BatchCount::kNonemptyRows);
  EXPECT_EQ(loss.reduction.row, RowCount::kTokens);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(OpenrlhfTest, GivenCountsAreOfAllProcesses) {
  const std::string counts =
      R"("batch_num_tokens": 300, "global_batch_size": 32, "dp_size": 4})";
  const LossSpec by_token = TranslateOpenrlhfBlock("{" + counts).spec.loss;
  EXPECT_EQ(by_token.reduction.count, BatchCount::kOne);
  EXPECT_EQ(by_token.reduction.row, RowCount::kOne);
  EXPECT_EQ(by_token.reduction.scale, 4.0 / 300.0);
  const LossSpec by_sample =
      TranslateOpenrlhfBlock(
          R"({"token_level_loss": false, "use_kl_loss": true, )" + counts)
          .spec.loss;
  EXPECT_EQ(by_sample.reduction.row, RowCount::kTokens);
  EXPECT_EQ(by_sample.reduction.scale, 4.0 / 32.0);
  // The penalty still averages over tokens.
  EXPECT_EQ(by_sample.kl.reduction.row, RowCount::kOne);
  EXPECT_EQ(by_sample.kl.reduction.scale, 4.0 / 300.0);
  // Without a count the number of processes has no effect.
  EXPECT_EQ(
      TranslateOpenrlhfBlock(R"({"dp_size": 4})").spec.loss.reduction.scale,
      1.0);
}

TEST(OpenrlhfTest, EstimatesAreClampedAfterTheFormula) {
  const kernels::KlSpec kl =
      TranslateOpenrlhfBlock(R"({"use_kl_loss": true})").spec.loss.kl;
  EXPECT_EQ(kl.estimator, kernels::KlEstimator::kK1);
  EXPECT_EQ(kl.coefficient, 0.01);
  EXPECT_EQ(kl.token_clamp, kUnbounded);
  EXPECT_EQ(kl.value_clamp, 10.0);
  EXPECT_EQ(kl.over, kernels::TokenSet::kOriginal);
}

class OpenrlhfRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(OpenrlhfRefusalTest, BlamesTheField) {
  EXPECT_THAT(Fields(TranslateOpenrlhfBlock(GetParam().json)),
              ElementsAre(GetParam().field));
}

INSTANTIATE_TEST_SUITE_P(
    All, OpenrlhfRefusalTest,
    testing::Values(
        Refusal{R"({"eps_clp": 0.2})", "eps_clp"},
        Refusal{R"({"eps_clip": -0.2})", "eps_clip"},
        Refusal{R"({"eps_clip_low_high": [0.2, -0.2]})", "eps_clip_low_high"},
        Refusal{R"({"eps_clip_low_high": 0.2})", "eps_clip_low_high"},
        Refusal{R"({"entropy_loss_coef": 0.01})", "entropy_loss_coef"},
        Refusal{R"({"dp_size": 0})", "dp_size"},
        Refusal{R"({"batch_num_tokens": 0})", "batch_num_tokens"},
        Refusal{R"({"global_batch_size": "32"})", "global_batch_size"},
        Refusal{R"({"token_level_loss": 1})", "token_level_loss"},
        Refusal{R"({"use_kl_loss": true, "init_kl_coef": null})",
                "init_kl_coef"},
        Refusal{R"({"enable_vllm_is_correction": true,
                    "vllm_is_truncated_threshold": [5, 0.5]})",
                "vllm_is_truncated_threshold"},
        Refusal{R"({"enable_vllm_is_correction": true,
                    "vllm_is_truncated_threshold": [-1, 0]})",
                "vllm_is_truncated_threshold"},
        Refusal{R"({"enable_vllm_is_correction": true,
                    "vllm_is_truncated_threshold": [1e308, 1.1e308]})",
                "vllm_is_truncated_threshold"},
        Refusal{R"({"enable_vllm_is_correction": true,
                    "vllm_is_truncated_threshold": [0.5, "5"]})",
                "vllm_is_truncated_threshold"}));

TEST(OpenrlhfTest, NamesOfTheCommandLineAreToldFromHere) {
  const Translation t =
      TranslateOpenrlhfBlock(R"({"is_correction_type": "tis"})");
  ASSERT_THAT(Fields(t), ElementsAre("is_correction_type"));
  EXPECT_THAT(t.violations[0].description,
              HasSubstr("vllm_is_correction_type"));
}

TEST(OpenrlhfTest, ZeroEntropyCoefficientIsNone) {
  EXPECT_THAT(Fields(TranslateOpenrlhfBlock(R"({"entropy_loss_coef": 0})")),
              IsEmpty());
  EXPECT_THAT(Fields(TranslateOpenrlhfBlock(R"({"entropy_loss_coef": null})")),
              IsEmpty());
}

TEST(OpenrlhfTest, AllViolationsAtOnce) {
  const Translation t =
      TranslateOpenrlhfBlock(R"({"policy_loss_type": "grpo", "dual_clip": 1,
                    "enable_vllm_is_correction": true,
                    "vllm_is_correction_type": "mis", "use_kl_loss": true,
                    "vllm_is_truncated_threshold": 2})",
                             Old({.wants_loss = true}));
  EXPECT_THAT(Fields(t),
              UnorderedElementsAre(
                  "policy_loss_type", "dual_clip", "vllm_is_correction_type",
                  "vllm_is_truncated_threshold", "tensors[ROLLOUT_LOG_PROBS]",
                  "tensors[OLD_LOG_PROBS]", "tensors[CURRENT_LOG_PROBS]",
                  "tensors[ADVANTAGES]", "tensors[REF_LOG_PROBS]"));
}

TEST(OpenrlhfMetricsTest, MeansOfNothingAreNan) {
  const Translation t = TranslateOpenrlhfBlock(
      R"({"enable_vllm_is_correction": true, "use_kl_loss": true})");
  MetricMap metrics;
  AddOpenrlhfMetrics(t.spec, kernels::BatchSums{}, &metrics);
  EXPECT_EQ(metrics.size(), 5u);
  for (const auto& [name, value] : metrics) {
    EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST(OpenrlhfMetricsTest, PenaltyIsOfTheGivenCount) {
  const Translation t = TranslateOpenrlhfBlock(
      R"({"use_kl_loss": true, "batch_num_tokens": 10})");
  kernels::BatchSums sums{};
  sums.loss.kl_penalty = 0.25;
  MetricMap metrics;
  AddOpenrlhfMetrics(t.spec, sums, &metrics);
  EXPECT_EQ(metrics.at("kl"), 0.25);
  EXPECT_TRUE(std::isnan(metrics.at("logprobs_diff")));
}

}  // namespace
}  // namespace counterweight::server
