#include "server/engine/dialects/trl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Bound;
using kernels::kUnbounded;
using kernels::Level;
using kernels::RatioSource;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

RequestFacts AllTensors() {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.has_ref_log_probs = true;
  facts.has_advantages = true;
  facts.num_sequences = 2;
  facts.padded_length = 4;
  facts.asked = {.release = {1, 9, 0}, .is_named = true};
  return facts;
}

RequestFacts WithLoss(RequestFacts facts = AllTensors()) {
  facts.wants_loss = true;
  return facts;
}

Translation TranslateTrlBlock(const std::string& json,
                              const RequestFacts& facts = AllTensors(),
                              bool ignore_unknown_fields = false) {
  return TranslateTrl(Block(json), ignore_unknown_fields, facts);
}

TEST(TrlTest, EmptyBlockMasksSequencesAboveThree) {
  const Translation t = TranslateTrlBlock("{}");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, IsEmpty());
  EXPECT_NE(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.weight.level, Level::kSequence);
  EXPECT_EQ(t.spec.weight.bound, Bound::kMask);
  EXPECT_EQ(t.spec.weight.source, RatioSource::kOldRollout);
  EXPECT_EQ(t.spec.weight.lower, 0.0);
  EXPECT_EQ(t.spec.weight.upper, 3.0);
  EXPECT_EQ(t.spec.weight.token_clamp, kUnbounded);
  EXPECT_EQ(t.spec.weight.aggregate_clamp, kUnbounded);
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.loss.surrogate, kernels::Surrogate::kNone);
}

TEST(TrlTest, ModesAreLevelAndBound) {
  const struct {
    const char* mode;
    Level level;
    Bound bound;
  } kCases[] = {
      {"token_truncate", Level::kToken, Bound::kTruncate},
      {"token_mask", Level::kToken, Bound::kMask},
      {"sequence_truncate", Level::kSequence, Bound::kTruncate},
      {"sequence_mask", Level::kSequence, Bound::kMask},
      {"sequence_geometric_mean_mask", Level::kGeometric, Bound::kMask},
  };
  for (const auto& row : kCases) {
    const Translation t = TranslateTrlBlock(
        std::string(R"({"vllm_importance_sampling_mode": ")") + row.mode +
        R"(", "vllm_importance_sampling_clip_min": 0.5})");
    EXPECT_THAT(Fields(t), IsEmpty()) << row.mode;
    EXPECT_EQ(t.spec.weight.level, row.level) << row.mode;
    EXPECT_EQ(t.spec.weight.bound, row.bound) << row.mode;
    EXPECT_EQ(t.spec.weight.lower, 0.5);
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  }
}

TEST(TrlTest, BoundsThatNoRatioReachesAreNone) {
  const Translation t = TranslateTrlBlock(
      R"({"vllm_importance_sampling_mode": "token_truncate",
          "vllm_importance_sampling_clip_min": -1,
          "vllm_importance_sampling_clip_max": null})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.weight.bound, Bound::kNone);
  EXPECT_EQ(t.spec.weight.lower, 0.0);
  EXPECT_EQ(t.spec.weight.upper, kUnbounded);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(TrlTest, NoSamplerNoCorrection) {
  RequestFacts facts = AllTensors();
  EXPECT_EQ(
      TranslateTrlBlock(R"({"use_vllm": false})", facts).spec.weight.level,
      Level::kNone);
  EXPECT_EQ(TranslateTrlBlock(
                R"({"vllm_importance_sampling_correction": false})", facts)
                .spec.weight.level,
            Level::kNone);
  facts.has_rollout_log_probs = false;
  const Translation t = TranslateTrlBlock("{}", facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentOld);
  EXPECT_THAT(Fields(TranslateTrlBlock(R"({"use_vllm": true})", facts)),
              ElementsAre("tensors[ROLLOUT_LOG_PROBS]"));
}

TEST(TrlTest, CurrentStandsForMissingOld) {
  RequestFacts facts = AllTensors();
  facts.has_old_log_probs = false;
  const Translation t = TranslateTrlBlock("{}", facts);
  EXPECT_EQ(t.spec.weight.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentRollout);
  facts.has_current_log_probs = false;
  EXPECT_THAT(Fields(TranslateTrlBlock("{}", facts)),
              ElementsAre("tensors[OLD_LOG_PROBS]"));
}

TEST(TrlTest, DeprecatedCapOverwritesClipMax) {
  const Translation t = TranslateTrlBlock(
      R"({"vllm_importance_sampling_cap": 1.5,
          "vllm_importance_sampling_clip_max": 9})");
  EXPECT_EQ(t.spec.weight.upper, 1.5);
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("deprecated")));
  EXPECT_THAT(
      TranslateTrlBlock(R"({"vllm_importance_sampling_cap": null})").warnings,
      IsEmpty());
}

TEST(TrlTest, BoundsAreCheckedAsInTrl) {
  // Always.
  for (const char* correction : {"true", "false"}) {
    EXPECT_THAT(Fields(TranslateTrlBlock(
                    std::string(R"({"vllm_importance_sampling_clip_min": 3,
                      "vllm_importance_sampling_correction": )") +
                    correction + "}")),
                ElementsAre("vllm_importance_sampling_clip_min"));
  }
  // Only if the correction is on.
  const std::string unbounded =
      R"("vllm_importance_sampling_mode": "token_truncate",
         "vllm_importance_sampling_clip_max": null)";
  EXPECT_THAT(Fields(TranslateTrlBlock("{" + unbounded + "}")),
              ElementsAre("vllm_importance_sampling_clip_max"));
  EXPECT_THAT(Fields(TranslateTrlBlock(
                  "{" + unbounded +
                  R"(, "vllm_importance_sampling_correction": false})")),
              IsEmpty());
}

TEST(TrlTest, BoundsThatSpoilEveryWeightAreRefusedWhereUsed) {
  for (const char* bound : {R"("vllm_importance_sampling_clip_max": 0)",
                            R"("vllm_importance_sampling_cap": -1)"}) {
    const std::string block = std::string("{") + bound;
    EXPECT_EQ(Fields(TranslateTrlBlock(block + "}")).size(), 1u) << bound;
    EXPECT_THAT(Fields(TranslateTrlBlock(block + R"(, "use_vllm": false})")),
                IsEmpty())
        << bound;
  }
  google::protobuf::Struct block;
  auto& fields = *block.mutable_fields();
  fields["vllm_importance_sampling_clip_max"].set_null_value(
      google::protobuf::NULL_VALUE);
  for (const double clip_min : {kUnbounded, 1e308}) {
    fields["vllm_importance_sampling_clip_min"] = Number(clip_min);
    EXPECT_THAT(Fields(TranslateTrl(block, false, AllTensors())),
                ElementsAre("vllm_importance_sampling_clip_min"));
  }
}

TEST(TrlTest, UnknownModeMattersOnlyWhereUsed) {
  const std::string block = R"({"vllm_importance_sampling_mode": "token_clip")";
  const Translation t = TranslateTrlBlock(block + "}");
  EXPECT_THAT(Fields(t), ElementsAre("vllm_importance_sampling_mode"));
  EXPECT_THAT(t.violations[0].description, HasSubstr("token_mask"));
  EXPECT_THAT(Fields(TranslateTrlBlock(block + R"(, "use_vllm": false})")),
              IsEmpty());
}

TEST(TrlTest, OffPolicyMaskComparesWithTheSamplerFirst) {
  const std::string block = R"({"off_policy_mask_threshold": 0.5})";
  RequestFacts facts = AllTensors();
  Translation t = TranslateTrlBlock(block, facts);
  ASSERT_EQ(t.spec.num_rules, 1);
  const kernels::RejectionRule& rule = t.spec.rules[0];
  EXPECT_EQ(rule.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(rule.aggregation, kernels::Aggregation::kMean);
  EXPECT_EQ(rule.condition, kernels::Condition::kNegativeAdvantage);
  EXPECT_EQ(rule.effect, kernels::Effect::kDrop);
  EXPECT_EQ(rule.lower, -0.5);
  EXPECT_EQ(rule.upper, kUnbounded);
  EXPECT_THAT(t.rule_names, ElementsAre("off_policy_mask"));
  facts.has_rollout_log_probs = false;
  EXPECT_EQ(TranslateTrlBlock(block, facts).spec.rules[0].source,
            RatioSource::kCurrentOld);
  facts.has_old_log_probs = false;
  t = TranslateTrlBlock(block, facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentSelf);
  EXPECT_THAT(Fields(TranslateTrlBlock(R"({"off_policy_mask_threshold": -0.1})",
                                       facts)),
              ElementsAre("off_policy_mask_threshold"));
}

TEST(TrlTest, MissingTensorsAreNamedOnce) {
  RequestFacts facts = WithLoss();
  facts.has_current_log_probs = false;
  facts.has_advantages = false;
  facts.has_ref_log_probs = false;
  EXPECT_THAT(
      Fields(TranslateTrlBlock(
          R"({"off_policy_mask_threshold": 0.5, "beta": 0.1})", facts)),
      UnorderedElementsAre("tensors[CURRENT_LOG_PROBS]", "tensors[ADVANTAGES]",
                           "tensors[REF_LOG_PROBS]"));
  facts.wants_loss = false;
  EXPECT_THAT(Fields(TranslateTrlBlock(R"({"beta": 0.1})", facts)), IsEmpty());
}

TEST(TrlTest, EntropiesAreRefusedByName) {
  EXPECT_THAT(Fields(TranslateTrlBlock(
                  R"({"top_entropy_quantile": 0.2, "entropy_coef": 0.01,
                      "use_adaptive_entropy": true})")),
              UnorderedElementsAre("top_entropy_quantile", "entropy_coef",
                                   "use_adaptive_entropy"));
  EXPECT_THAT(Fields(TranslateTrlBlock(
                  R"({"top_entropy_quantile": 1.0, "entropy_coef": 0,
                      "use_adaptive_entropy": false, "entropy_coef_min": 0,
                      "entropy_coef_max": 1, "entropy_coef_delta": 0.005,
                      "entropy_target": 0.2, "num_iterations": 1,
                      "steps_per_generation": 4})")),
              IsEmpty());
}

TEST(TrlTest, LigerExcludesTheOffPolicyMask) {
  EXPECT_THAT(Fields(TranslateTrlBlock(R"({"use_liger_kernel": true,
                                   "off_policy_mask_threshold": 0.5})")),
              ElementsAre("use_liger_kernel"));
  const Translation t =
      TranslateTrlBlock(R"({"use_liger_kernel": true})", WithLoss());
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("clip_ratio")));
}

TEST(TrlTest, UnknownFieldsAreNamedOrIgnored) {
  const std::string block = R"({"epsilon_hihg": 0.3, "learning_rate": 1e-6})";
  const Translation t = TranslateTrlBlock(block);
  EXPECT_THAT(Fields(t), ElementsAre("epsilon_hihg", "learning_rate"));
  EXPECT_THAT(t.violations[0].description, HasSubstr("'epsilon_high'"));
  const Translation ignored = TranslateTrlBlock(block, AllTensors(), true);
  EXPECT_THAT(Fields(ignored), IsEmpty());
  EXPECT_EQ(ignored.warnings.size(), 2u);
}

TEST(TrlTest, AllViolationsAtOnce) {
  EXPECT_THAT(
      Fields(TranslateTrlBlock(
          R"({"loss_type": "ppo", "importance_sampling_level": "sentence",
              "vllm_importance_sampling_mode": 1, "epsilon": "0.2",
              "entropy_coef": 0.1, "bta": 0.1})")),
      UnorderedElementsAre("loss_type", "importance_sampling_level",
                           "vllm_importance_sampling_mode", "epsilon",
                           "entropy_coef", "bta"));
}

TEST(TrlTest, ExperimentalTrainersAreNotThisOne) {
  const Translation t = TranslateTrlBlock(
      R"({"loss_type": "gmpo", "importance_sampling_level": "sequence_token"})");
  ASSERT_EQ(t.violations.size(), 2u);
  for (const Violation& violation : t.violations) {
    EXPECT_THAT(violation.description, HasSubstr("trl.experimental"));
  }
}

TEST(TrlTest, OneAdvantagePerRowForVespoAndLuspo) {
  kernels::BatchSums sums{};
  sums.num_sequences = sums.nonempty_sequences = 2;
  sums.tokens = 5;
  sums.peers.loss.mixed_rows = 1;
  for (const char* type : {"vespo", "luspo", "dapo"}) {
    const Translation t = TranslateTrlBlock(
        std::string(R"({"use_vllm": false, "loss_type": ")") + type + R"("})",
        WithLoss());
    ASSERT_THAT(Fields(t), IsEmpty());
    MetricMap metrics;
    Violations violations;
    t.report(sums, &metrics, &violations);
    if (type == std::string("dapo")) {
      EXPECT_THAT(violations, IsEmpty());
    } else {
      ASSERT_EQ(violations.size(), 1u);
      EXPECT_EQ(violations[0].field, "tensors[ADVANTAGES]");
      EXPECT_THAT(violations[0].description, HasSubstr(type));
    }
  }
}

}  // namespace
}  // namespace counterweight::server
