// Warnings about the numbers of a batch.
#include "server/engine/codec_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Rows of two tokens whose log ratio is the row's number.
v1::CorrectRequest RowsOf(const std::vector<float>& log_ratios) {
  v1::CorrectRequest request;
  v1::PaddedLayout* layout = request.mutable_layout()->mutable_padded();
  layout->set_num_sequences(static_cast<int64_t>(log_ratios.size()));
  layout->set_length(2);
  std::vector<float> old;
  for (const float log_ratio : log_ratios) {
    old.insert(old.end(), 2, log_ratio - 9.0f);
  }
  const std::vector<float> rollout(old.size(), -9.0f);
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, old, &request);
  AddMask(std::string(old.size(), '\1'), &request);
  return request;
}

// Adds a rule of single tokens that keeps ratios in [lower, upper].
v1::RejectionRule* AddRule(double lower, double upper,
                           v1::CorrectRequest* request) {
  v1::RejectionRule* rule =
      request->mutable_method()->mutable_config()->add_rules();
  rule->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  rule->set_estimator(v1::ESTIMATOR_RATIO);
  rule->set_aggregation(v1::AGGREGATION_TOKEN);
  rule->set_lower(lower);
  rule->set_upper(upper);
  return rule;
}

std::vector<std::string> WarningsOf(const v1::CorrectRequest& request) {
  const Answer answer = AnswerOf(request);
  EXPECT_THAT(answer.fields(), IsEmpty());
  const auto& warnings = answer.response.warnings();
  return {warnings.begin(), warnings.end()};
}

TEST(CodecWarnings, ARuleThatDropsMoreThanHalfIsNamedWithItsInterval) {
  v1::CorrectRequest request = RowsOf({0.0f, 0.02f, -0.3f});
  request.mutable_method()->mutable_preset()->set_name("geo_rs_token_tis");
  EXPECT_THAT(
      WarningsOf(request),
      ElementsAre("rule mean_ratio drops 66 % of the tokens it covers, where "
                  "the ratio is outside 0.999 to 1.001; rules/mean_ratio/"
                  "low_fraction and high_fraction show the side. If the drift "
                  "(k3) is as usual, the interval is too narrow: "
                  "`counterweight suggest FILE` prints bounds that fit"));
  auto& parameters =
      *request.mutable_method()->mutable_preset()->mutable_parameters();
  parameters["keep_lower"] = 0.9;
  parameters["keep_upper"] = 1.1;
  EXPECT_THAT(WarningsOf(request), IsEmpty());
}

TEST(CodecWarnings, HalfOfTheTokensIsNotMore) {
  v1::CorrectRequest request = RowsOf({0.0f, 1.0f});
  AddRule(0.5, 2.0, &request);
  EXPECT_THAT(WarningsOf(request), IsEmpty());
}

TEST(CodecWarnings, AnIntervalWithOneEnd) {
  v1::CorrectRequest request = RowsOf({1.0f});
  v1::RejectionRule* rule = AddRule(0.5, 2.0, &request);
  rule->clear_lower();
  rule->set_name("mine");
  EXPECT_THAT(WarningsOf(request),
              ElementsAre(HasSubstr("rule mine drops 100 % of the tokens it "
                                    "covers, where the ratio is above 2;")));
  rule->set_estimator(v1::ESTIMATOR_K3);
  rule->set_upper(0.125);
  EXPECT_THAT(WarningsOf(request),
              ElementsAre(HasSubstr("where the k3 is above 0.125;")));
  rule->set_estimator(v1::ESTIMATOR_RATIO);
  rule->clear_upper();
  rule->set_lower(3.5);
  EXPECT_THAT(WarningsOf(request),
              ElementsAre(HasSubstr("where the ratio is below 3.5;")));
}

// One of four rows falls to the first rule, two of the other three to the
// second, which is half of all.
TEST(CodecWarnings, ALaterRuleCoversThatWhichEarlierOnesKept) {
  v1::CorrectRequest request = RowsOf({0.0f, 1.0f, 1.0f, 3.0f});
  AddRule(0.5, 10.0, &request);
  AddRule(0.5, 2.0, &request);
  v1::CorrectionConfig* config = request.mutable_method()->mutable_config();
  config->set_rule_evaluation(v1::RULE_EVALUATION_SEQUENTIAL);
  EXPECT_THAT(WarningsOf(request),
              ElementsAre(HasSubstr("drops 66 % of the tokens it covers")));
  // Weights of 0 leave the tokens to the rules after them.
  v1::ImportanceWeight* weight = config->mutable_importance_weight();
  weight->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  weight->set_level(v1::LEVEL_TOKEN);
  weight->set_bound(v1::BOUND_NONE);
  config->mutable_rules(0)->set_effect(v1::RULE_EFFECT_ZERO_WEIGHT);
  EXPECT_THAT(WarningsOf(request),
              ElementsAre(HasSubstr("drops 75 % of the tokens it covers")));
  config->mutable_rules(0)->set_upper(2.0);
  EXPECT_THAT(WarningsOf(request),
              ElementsAre(HasSubstr("zeroes the weights of 75 %"),
                          HasSubstr("drops 75 % of the tokens it covers")));
}

TEST(CodecWarnings, EverySystemsOwnBlockIsWarnedAbout) {
  const std::vector<std::pair<std::string, std::string>> blocks = {
      {"verl", R"({"rollout_rs": "token_k2", "rollout_rs_threshold": 0.25})"},
      {"trl", R"({"off_policy_mask_threshold": 0.5})"},
      {"skyrl", R"({"off_policy_correction": {
                    "sequence_mask_metric": "geometric",
                    "geo_mask_low": 0.9, "geo_mask_high": 1.1}})"},
      {"openrlhf", R"({"enable_vllm_is_correction": true,
                       "vllm_is_correction_type": "seq-mask-tis",
                       "vllm_is_truncated_threshold": [0.5, 2]})"}};
  for (const auto& [system, block] : blocks) {
    v1::CorrectRequest request = RowsOf({0.0f, -1.0f, -1.0f});
    request.add_tensors()->CopyFrom(request.tensors(1));
    request.mutable_tensors(3)->set_role(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
    AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, {-1, -1, -1, -1, -1, -1}, &request);
    v1::Dialect* dialect = request.mutable_method()->mutable_dialect();
    dialect->set_system(system);
    if (system == "openrlhf") dialect->set_release("0.11.1");
    *dialect->mutable_block() = Block(block);
    EXPECT_THAT(WarningsOf(request),
                testing::Contains(testing::AllOf(
                    HasSubstr(" 66 % of the tokens it covers, where the "),
                    testing::Not(HasSubstr("low_fraction")))))
        << system;
  }
}

TEST(CodecWarnings, AnAnswerWithoutMetricsHasNoSharesOfRules) {
  v1::CorrectRequest request = RowsOf({1.0f});
  AddRule(0.5, 2.0, &request);
  request.set_omit_metrics(true);
  EXPECT_THAT(WarningsOf(request), IsEmpty());
}

}  // namespace
}  // namespace counterweight::server
