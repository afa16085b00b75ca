#include "server/engine/dialects/verl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/verl_presets.h"
#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::Bound;
using kernels::Estimator;
using kernels::kUnbounded;
using kernels::Level;
using kernels::RatioSource;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

RequestFacts AllLogProbs() {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.num_sequences = 2;
  facts.padded_length = 4;
  return facts;
}

Translation TranslateVerlBlock(const std::string& json,
                               const RequestFacts& facts = AllLogProbs(),
                               bool ignore_unknown_fields = false) {
  return TranslateVerl(Block(json), ignore_unknown_fields, facts);
}

std::vector<std::string> WholeFields(const Violations& violations) {
  std::vector<std::string> fields;
  for (const Violation& violation : violations) {
    fields.push_back(violation.field);
  }
  return fields;
}

TEST(VerlTest, EmptyBlockIsDisabled) {
  const Translation t = TranslateVerlBlock("{}");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_THAT(t.warnings, IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kOldRollout);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(VerlTest, TokenWeightClampsTokens) {
  const Translation t = TranslateVerlBlock(R"({"rollout_is": "token"})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_NE(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.weight.level, Level::kToken);
  EXPECT_EQ(t.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(t.spec.weight.lower, 0.0);
  EXPECT_EQ(t.spec.weight.upper, 2.0);
  EXPECT_EQ(t.spec.weight.token_clamp, 20.0);
  EXPECT_EQ(t.spec.weight.aggregate_clamp, kUnbounded);
  EXPECT_FALSE(t.spec.weight.normalize);
}

TEST(VerlTest, SequenceWeightClampsTheSum) {
  const Translation t = TranslateVerlBlock(
      R"({"rollout_is": "sequence", "rollout_is_threshold": "0.5_5.0",
          "rollout_is_batch_normalize": true})");
  EXPECT_EQ(t.spec.weight.level, Level::kSequence);
  EXPECT_EQ(t.spec.weight.bound, Bound::kMask);
  EXPECT_EQ(t.spec.weight.lower, 0.5);
  EXPECT_EQ(t.spec.weight.upper, 5.0);
  EXPECT_EQ(t.spec.weight.token_clamp, kUnbounded);
  EXPECT_EQ(t.spec.weight.aggregate_clamp, 20.0);
  EXPECT_TRUE(t.spec.weight.normalize);
}

TEST(VerlTest, NullThresholdSwitchesWeightsOffWithAWarning) {
  const Translation t = TranslateVerlBlock(
      R"({"rollout_is": "token", "rollout_is_threshold": null})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_THAT(t.warnings,
              ElementsAre(HasSubstr("rollout_is_threshold is null")));
}

TEST(VerlTest, UnusedThresholdsAreNotRead) {
  EXPECT_THAT(TranslateVerlBlock(R"({"rollout_is_threshold": "junk",
                            "rollout_rs_threshold": "junk",
                            "loss_type": "junk"})")
                  .violations,
              IsEmpty());
}

TEST(VerlTest, K1BoundsTheInverseRatio) {
  const Translation t = TranslateVerlBlock(
      R"({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.6_1.4"})");
  EXPECT_THAT(t.violations, IsEmpty());
  ASSERT_EQ(t.spec.num_rules, 1);
  const kernels::RejectionRule& rule = t.spec.rules[0];
  EXPECT_EQ(rule.estimator, Estimator::kRatio);
  EXPECT_EQ(rule.aggregation, Aggregation::kMean);
  EXPECT_EQ(rule.token_clamp, 20.0);
  EXPECT_EQ(rule.lower, -kernels::LogRatio(1.4));
  EXPECT_EQ(rule.upper, -kernels::LogRatio(0.6));
  EXPECT_THAT(t.rule_names, ElementsAre("seq_mean_k1"));
  EXPECT_THAT(t.warnings,
              ElementsAre(HasSubstr("ratios from 0.714286 to 1.66667")));
}

TEST(VerlTest, ReciprocalK1BoundsDeserveNoWarning) {
  EXPECT_THAT(TranslateVerlBlock(R"({"rollout_rs": "token_k1",
                            "rollout_rs_threshold": "0.999_1.001"})")
                  .warnings,
              IsEmpty());
}

TEST(VerlTest, K2AndK3HaveUpperBounds) {
  const Translation t =
      TranslateVerlBlock(R"({"rollout_rs": "seq_max_k2, token_k3, token_k3",
                    "rollout_rs_threshold": "0.5,inf"})");
  EXPECT_THAT(t.violations, IsEmpty());
  ASSERT_EQ(t.spec.num_rules, 2);
  EXPECT_EQ(t.spec.rules[0].estimator, Estimator::kK2);
  EXPECT_EQ(t.spec.rules[0].aggregation, Aggregation::kMax);
  EXPECT_EQ(t.spec.rules[0].upper, 0.5);
  EXPECT_EQ(t.spec.rules[1].estimator, Estimator::kK3);
  EXPECT_EQ(t.spec.rules[1].upper, kUnbounded);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(VerlTest, EveryOptionMakesAValidSpec) {
  const Translation t = TranslateVerlBlock(
      R"({"rollout_is": "sequence", "rollout_is_threshold": "inf",
          "rollout_rs": "seq_max_k2,seq_max_k3,seq_mean_k1,seq_mean_k2,
                         seq_mean_k3,seq_sum_k1,seq_sum_k2,seq_sum_k3,
                         token_k1,token_k2,token_k3",
          "rollout_rs_threshold": 2})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.num_rules, 11);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(VerlTest, BypassCorrectsTheCurrentPolicy) {
  const Translation t = TranslateVerlBlock(
      R"({"bypass_mode": true, "loss_type": "reinforce", "rollout_is": "token",
          "rollout_rs": "token_k2", "rollout_rs_threshold": 1})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.weight.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.rules[0].source, RatioSource::kCurrentRollout);
}

TEST(VerlTest, LossTypeIsReadInBypass) {
  EXPECT_THAT(WholeFields(TranslateVerlBlock(
                              R"({"bypass_mode": true, "loss_type": "pg"})")
                              .violations),
              ElementsAre("method.dialect.block.loss_type"));
}

TEST(VerlTest, MissingLogProbsAreNamed) {
  EXPECT_THAT(
      WholeFields(TranslateVerlBlock("{}", RequestFacts{}).violations),
      ElementsAre("tensors[ROLLOUT_LOG_PROBS]", "tensors[OLD_LOG_PROBS]"));
  EXPECT_THAT(
      WholeFields(TranslateVerlBlock(R"({"bypass_mode": true})", RequestFacts{})
                      .violations),
      ElementsAre("tensors[ROLLOUT_LOG_PROBS]", "tensors[CURRENT_LOG_PROBS]"));
}

TEST(VerlTest, FindsEverythingAtOnce) {
  RequestFacts facts = AllLogProbs();
  facts.has_old_log_probs = false;
  const Translation t = TranslateVerlBlock(
      R"({"rollout_is": "geometric", "rollout_is_threshold": "5_0.5",
          "rollout_is_batch_normalize": "yes", "rollout_rs": "token,token_k1",
          "rollout_rs_threshold": "1,0.5", "rollout_iss": 1})",
      facts);
  EXPECT_THAT(
      WholeFields(t.violations),
      UnorderedElementsAre(
          "method.dialect.block.rollout_iss", "tensors[OLD_LOG_PROBS]",
          "method.dialect.block.rollout_is_batch_normalize",
          "method.dialect.block.rollout_is_threshold",
          "method.dialect.block.rollout_is", "method.dialect.block.rollout_rs",
          "method.dialect.block.rollout_rs_threshold"));
  EXPECT_THAT(t.violations,
              Contains(Field(&Violation::description,
                             HasSubstr("What was 'token' is 'token_k1' now"))));
}

TEST(VerlTest, FormerFieldsAreExplained) {
  const Translation t =
      TranslateVerlBlock(R"({"rollout_token_veto_threshold": 1e-4})");
  ASSERT_EQ(t.violations.size(), 1u);
  EXPECT_THAT(t.violations[0].description, HasSubstr("removed the veto"));
}

TEST(VerlTest, UnknownFieldsCanBeIgnored) {
  const Translation t =
      TranslateVerlBlock(R"({"rollout_iss": "token"})", AllLogProbs(), true);
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("rollout_iss")));
}

TEST(VerlTest, ReadsTheOriginalsTree) {
  const std::string tree = R"({
      "data": {"train_batch_size": 64},
      "algorithm": {"adv_estimator": "grpo", "rollout_correction":
          {"rollout_is": "token", "rollout_is_threshold": 3.0}},
      "actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "gspo"}}}})";
  const Translation t = TranslateVerlBlock(tree);
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.weight.upper, 3.0);
}

TEST(VerlTest, NamesFieldsOfTheTreeByTheirPath) {
  EXPECT_THAT(
      WholeFields(TranslateVerlBlock(R"({"algorithm": {"rollout_correction":
                {"rollout_is": "x"}}, "rollout_rs": "token_k1"})")
                      .violations),
      UnorderedElementsAre(
          "method.dialect.block.rollout_rs",
          "method.dialect.block.algorithm.rollout_correction.rollout_is"));
  EXPECT_THAT(
      TranslateVerlBlock(R"({"algorithm": {"rollout_correction": null}})")
          .violations,
      IsEmpty());
  EXPECT_THAT(
      WholeFields(TranslateVerlBlock(R"({"algorithm": []})").violations),
      ElementsAre("method.dialect.block.algorithm"));
}

TEST(VerlPresetsTest, EveryPresetTranslates) {
  EXPECT_EQ(VerlPresets().size(), 19u);
  for (const VerlPreset& preset : VerlPresets()) {
    const std::string name(preset.name);
    const Translation t =
        TranslateVerlBlock(R"({"preset": ")" + name + R"("})");
    EXPECT_THAT(t.violations, IsEmpty()) << name;
    EXPECT_EQ(t.spec.weight.level != Level::kNone, !preset.rollout_is.empty())
        << name;
    EXPECT_EQ(t.spec.num_rules, preset.rollout_rs.empty() ? 0 : 1) << name;
    EXPECT_EQ(t.spec.drift_source == RatioSource::kCurrentRollout,
              name.starts_with("bypass"))
        << name;
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty()) << name;
  }
}

TEST(VerlPresetsTest, TakeTheirArguments) {
  const Translation icepop = TranslateVerlBlock(
      R"({"preset": "decoupled_token_icepop", "threshold": 4,
          "threshold_lower": 0.25})");
  EXPECT_THAT(icepop.violations, IsEmpty());
  EXPECT_EQ(icepop.spec.weight.bound, Bound::kMask);
  EXPECT_EQ(icepop.spec.weight.lower, 0.25);
  EXPECT_EQ(icepop.spec.weight.upper, 4.0);

  const Translation geo = TranslateVerlBlock(
      R"({"preset": "decoupled_geo_rs_seq_tis", "is_threshold": 3,
          "rs_threshold": 1.01})");
  EXPECT_THAT(geo.violations, IsEmpty());
  EXPECT_EQ(geo.spec.weight.upper, 3.0);
  EXPECT_EQ(geo.spec.rules[0].lower, -std::log(1.01));
}

TEST(VerlPresetsTest, HaveTheirDefaults) {
  const Translation t =
      TranslateVerlBlock(R"({"preset": "decoupled_k3_rs_token_tis"})");
  EXPECT_EQ(t.spec.weight.level, Level::kToken);
  EXPECT_EQ(t.spec.weight.upper, 2.0);
  EXPECT_EQ(t.spec.rules[0].estimator, Estimator::kK3);
  EXPECT_EQ(t.spec.rules[0].aggregation, Aggregation::kMean);
  EXPECT_EQ(t.spec.rules[0].upper, 0.01);
}

TEST(VerlPresetsTest, BlameTheirArguments) {
  EXPECT_THAT(
      WholeFields(TranslateVerlBlock(R"({"preset": "decoupled_seq_is_rs",
                                   "is_threshold": -1, "rs_threshold": "x"})")
                      .violations),
      UnorderedElementsAre("method.dialect.block.is_threshold",
                           "method.dialect.block.rs_threshold"));
}

TEST(VerlPresetsTest, StandForTheWholeBlock) {
  const Translation t = TranslateVerlBlock(
      R"({"preset": "decoupled_token_is", "rollout_rs": "token_k1"})");
  ASSERT_EQ(t.violations.size(), 1u);
  EXPECT_EQ(t.violations[0].field, "method.dialect.block.rollout_rs");
  EXPECT_THAT(t.violations[0].description,
              HasSubstr("takes the arguments threshold"));
}

TEST(VerlRulesTest, UnknownOptionsNameTheNearest) {
  const Translation t = TranslateVerlBlock(
      R"({"rollout_rs": "seq_mena_k3", "rollout_rs_threshold": 0.01})");
  ASSERT_FALSE(t.violations.empty());
  EXPECT_EQ(t.violations[0].field, "method.dialect.block.rollout_rs");
  EXPECT_THAT(t.violations[0].description,
              HasSubstr("'seq_mena_k3'. Did you mean 'seq_mean_k3'? Must be"));
}

TEST(VerlPresetsTest, UnknownPresetsNameTheNearest) {
  const Translation t =
      TranslateVerlBlock(R"({"preset": "decoupled_tokn_is"})");
  ASSERT_EQ(t.violations.size(), 1u);
  EXPECT_EQ(t.violations[0].field, "method.dialect.block.preset");
  EXPECT_THAT(t.violations[0].description,
              HasSubstr("Did you mean 'decoupled_token_is'?"));
  EXPECT_EQ(TranslateVerlBlock(R"({"preset": 3})").violations.size(), 1u);
}

TEST(VerlReportTest, EmptyMaskIsAViolation) {
  const Translation t = TranslateVerlBlock("{}");
  MetricMap metrics;
  Violations violations;
  t.report(kernels::BatchSums{}, &metrics, &violations);
  EXPECT_THAT(WholeFields(violations), ElementsAre("tensors[RESPONSE_MASK]"));
  EXPECT_THAT(metrics, IsEmpty());
}

TEST(VerlReportTest, WeightsThatAreAllZeroBlameTheThreshold) {
  const Translation t = TranslateVerlBlock(
      R"({"preset": "decoupled_token_icepop", "threshold_lower": 1e3,
          "threshold": 1e4})");
  kernels::BatchSums sums{};
  sums.num_sequences = sums.nonempty_sequences = 1;
  sums.tokens = sums.kept_tokens = 3;
  MetricMap metrics;
  Violations violations;
  t.report(sums, &metrics, &violations);
  EXPECT_THAT(WholeFields(violations),
              ElementsAre("method.dialect.block.threshold"));
}

}  // namespace
}  // namespace counterweight::server
