// Policy losses spelled out on the wire.
#include "server/engine/codec_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

v1::PolicyLoss PpoClip() {
  v1::PolicyLoss loss;
  loss.set_surrogate(v1::SURROGATE_PPO_CLIP);
  loss.set_aggregation(v1::LOSS_AGGREGATION_TOKEN_MEAN);
  loss.set_denominator(v1::LOSS_DENOMINATOR_ORIGINAL);
  loss.set_clip_low(0.2);
  loss.set_clip_high(0.2);
  return loss;
}

// Two rows of two tokens, the last one masked; ratios current/old are 1.
v1::CorrectRequest RequestWith(const v1::PolicyLoss& loss) {
  v1::CorrectRequest request;
  v1::PaddedLayout* layout = request.mutable_layout()->mutable_padded();
  layout->set_num_sequences(2);
  layout->set_length(2);
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, {-1, -1, -1, -1}, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, {-1, -2, -3, -4}, &request);
  AddNumbers(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, {-1, -2, -3, -4}, &request);
  AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, {1, 2, 4, 8}, &request);
  AddMask({1, 1, 1, 0}, &request);
  *request.mutable_method()->mutable_config()->mutable_policy_loss() = loss;
  return request;
}

TEST(CodecLoss, EqualPoliciesLoseTheMeanAdvantage) {
  const Answer answer = AnswerOf(RequestWith(PpoClip()));
  ASSERT_THAT(answer.violations, IsEmpty());
  EXPECT_DOUBLE_EQ(answer.response.loss(), -7.0 / 3.0);
  EXPECT_THAT(answer.gradient(),
              ElementsAre(-1.0f / 3.0f, -2.0f / 3.0f, -4.0f / 3.0f, 0.0f));
}

TEST(CodecLoss, AggregationsAndDenominators) {
  const auto loss = [](v1::LossAggregation aggregation) {
    v1::PolicyLoss message = PpoClip();
    message.set_aggregation(aggregation);
    return AnswerOf(RequestWith(message)).response.loss();
  };
  EXPECT_DOUBLE_EQ(loss(v1::LOSS_AGGREGATION_TOKEN_SUM), -7.0);
  EXPECT_DOUBLE_EQ(loss(v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM), -3.5);
  EXPECT_DOUBLE_EQ(loss(v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN), -2.75);
  // The padded width, 2.
  EXPECT_DOUBLE_EQ(loss(v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM), -1.75);
}

TEST(CodecLoss, WhatASurrogateNeedsAndDoesNotReadIsNamed) {
  v1::PolicyLoss loss = PpoClip();
  loss.clear_clip_high();
  loss.set_beta(1.0);
  EXPECT_THAT(AnswerOf(RequestWith(loss)).fields(),
              UnorderedElementsAre("method.config.policy_loss.clip_high",
                                   "method.config.policy_loss.beta"));
  loss.set_surrogate(v1::SURROGATE_UNSPECIFIED);
  EXPECT_THAT(AnswerOf(RequestWith(loss)).fields(),
              ElementsAre("method.config.policy_loss.surrogate"));
  loss = PpoClip();
  loss.clear_denominator();
  EXPECT_THAT(AnswerOf(RequestWith(loss)).fields(),
              ElementsAre("method.config.policy_loss.denominator"));
  loss.set_surrogate(v1::SURROGATE_GEO_MEAN);
  loss.set_denominator(v1::LOSS_DENOMINATOR_KEPT);
  EXPECT_THAT(AnswerOf(RequestWith(loss)).fields(),
              ElementsAre("method.config.policy_loss.aggregation"));
}

TEST(CodecLoss, TheSameDriftIsNotCorrectedTwice) {
  v1::PolicyLoss loss = PpoClip();
  loss.set_ratio_source(v1::RATIO_SOURCE_CURRENT_ROLLOUT);
  v1::CorrectRequest request = RequestWith(loss);
  v1::ImportanceWeight* weight =
      request.mutable_method()->mutable_config()->mutable_importance_weight();
  weight->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  weight->set_level(v1::LEVEL_TOKEN);
  weight->set_bound(v1::BOUND_TRUNCATE);
  weight->set_upper(2.0);
  EXPECT_THAT(AnswerOf(request).fields(),
              ElementsAre("method.config.policy_loss.allow_double_correction"));
  request.mutable_method()
      ->mutable_config()
      ->mutable_policy_loss()
      ->set_allow_double_correction(true);
  EXPECT_THAT(AnswerOf(request).violations, IsEmpty());
}

TEST(CodecLoss, AKlPenaltyNeedsALossAndItsReference) {
  v1::CorrectRequest request = RequestWith(PpoClip());
  v1::CorrectionConfig* config = request.mutable_method()->mutable_config();
  config->mutable_kl_penalty()->set_estimator(v1::KL_ESTIMATOR_K1);
  config->mutable_kl_penalty()->set_coefficient(0.5);
  EXPECT_THAT(AnswerOf(request).fields(),
              ElementsAre("tensors[REF_LOG_PROBS]"));
  AddNumbers(v1::TENSOR_ROLE_REF_LOG_PROBS, {-2, -3, -4, -5}, &request);
  const Answer answer = AnswerOf(request);
  // d = 1 everywhere: the penalty is 0.5, its gradient 0.5 / 3 a token.
  EXPECT_DOUBLE_EQ(answer.response.loss(), -7.0 / 3.0 + 0.5);
  EXPECT_FLOAT_EQ(answer.gradient()[0], -1.0f / 3.0f + 0.5f / 3.0f);
  config->clear_policy_loss();
  EXPECT_THAT(AnswerOf(request).fields(),
              ElementsAre("method.config.kl_penalty"));
}

TEST(CodecLoss, APresetTakesALoss) {
  v1::CorrectRequest request = RequestWith(PpoClip());
  v1::Preset* preset = request.mutable_method()->mutable_preset();
  preset->set_name("token_tis");
  *preset->mutable_policy_loss() = PpoClip();
  const Answer answer = AnswerOf(request);
  ASSERT_THAT(answer.violations, IsEmpty());
  // Weights 1, exp(-1), exp(-2).
  EXPECT_NEAR(answer.response.loss(),
              -(1.0 + 2.0 * 0.36787944 + 4.0 * 0.13533528) / 3.0, 1e-6);
}

// Ratios 2, 1/2, 2 with advantages 1, -1, -1: the first two are clipped, one on
// each side, and the third alone has a gradient, 2 / 3.
TEST(CodecLoss, MetricsTellWhatClippingTook) {
  v1::CorrectRequest request = RequestWith(PpoClip());
  const float log2 = 0.69314718f;
  const std::vector<float> old = {-2, -2, -2, 0};
  const std::vector<float> current = {-2 + log2, -2 - log2, -2 + log2, 0};
  const std::vector<float> advantages = {1, -1, -1, 0};
  const auto replace = [&](int tensor, const std::vector<float>& values) {
    request.mutable_tensors(tensor)->set_data(values.data(),
                                              values.size() * sizeof(float));
  };
  replace(1, old);
  replace(2, current);
  replace(3, advantages);
  const Answer answer = AnswerOf(request);
  ASSERT_THAT(answer.violations, IsEmpty());
  const auto metric = [&](const char* name) {
    return answer.response.metrics().at(std::string("loss/") + name);
  };
  EXPECT_NEAR(answer.response.loss(), (-1.2 + 0.8 + 2.0) / 3.0, 1e-6);
  EXPECT_NEAR(metric("policy"), answer.response.loss(), 1e-12);
  EXPECT_DOUBLE_EQ(metric("count"), 3.0);
  EXPECT_DOUBLE_EQ(metric("clip_fraction"), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(metric("clip_high_fraction"), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(metric("clip_low_fraction"), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(metric("clip_region_fraction"), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(metric("dual_clip_fraction"), 0.0);
  EXPECT_NEAR(metric("ppo_kl"), -0.69314718 / 3.0, 1e-6);
  EXPECT_NEAR(metric("ratio_mean"), 1.5, 1e-6);
  EXPECT_NEAR(metric("ratio_min"), 0.5, 1e-6);
  EXPECT_NEAR(metric("ratio_max"), 2.0, 1e-6);
  EXPECT_NEAR(metric("gradient_norm"), 2.0 / 3.0, 1e-6);
  // The gradients are 2 + 1/2 + 2.
  EXPECT_NEAR(metric("gradient_clipped_share"), 2.5 / 4.5, 1e-6);
  EXPECT_DOUBLE_EQ(metric("gradient_rejected_share"), 0.0);
}

TEST(CodecLoss, AGradientWithoutALossIsRefused) {
  v1::CorrectRequest request = RequestWith(PpoClip());
  request.mutable_method()->mutable_config()->clear_policy_loss();
  request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
  EXPECT_THAT(AnswerOf(request).fields(), ElementsAre("outputs[0]"));
}

// A token with an old log-prob of -3, current above 0, and advantage 1.
v1::CorrectRequest AboveZero(float current, const std::string& system,
                             const std::string& block) {
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(1);
  request.mutable_layout()->mutable_padded()->set_length(2);
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, {-3, -1}, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, {-3, -1}, &request);
  AddNumbers(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, {current, -1}, &request);
  AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, {1, 1}, &request);
  AddMask({1, 1}, &request);
  v1::Dialect* dialect = request.mutable_method()->mutable_dialect();
  dialect->set_system(system);
  *dialect->mutable_block() = Block(block);
  request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
  return request;
}

// The divergence of a probability above 1 is no number: verl keeps what is
// within its bound, SkyRL drops what is above it.
TEST(CodecLoss, WhatOmitLossLeavesOutIsNotAskedFor) {
  v1::CorrectRequest request = RequestWith(PpoClip());
  request.set_omit_loss(true);
  EXPECT_FALSE(AnswerOf(request).response.has_loss());
  request.set_compute_loss(true);
  request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
  // And nothing says that the method has no loss.
  Answer answer = AnswerOf(request);
  EXPECT_THAT(answer.fields(), ElementsAre("compute_loss", "outputs"));
  for (const Violation& violation : answer.violations) {
    EXPECT_THAT(violation.description, HasSubstr("which omit_loss leaves out"));
  }
  request = RequestWith(PpoClip());
  request.set_omit_loss(true);
  request.mutable_global_counts()->set_num_tokens(100);
  request.add_row_divisors(2.0);
  answer = AnswerOf(request);
  EXPECT_THAT(answer.fields(), ElementsAre("global_counts", "row_divisors"));
  for (const Violation& violation : answer.violations) {
    EXPECT_THAT(violation.description, HasSubstr("which omit_loss leaves out"));
  }
}

TEST(CodecLoss, ADivergenceThatIsNoNumberIsItsSystemsOwn) {
  for (const float current : {1e-7f, 0.03f}) {
    const Answer verl = AnswerOf(AboveZero(
        current, "verl",
        R"({"policy_loss": {"loss_mode": "dppo_kl", "clip_ratio_low": 0.05,
            "clip_ratio_high": 0.05, "clip_ratio_c": 3.0,
            "loss_agg_mode": "token-mean"}})"));
    ASSERT_THAT(verl.violations, IsEmpty());
    EXPECT_THAT(verl.gradient(), ElementsAre(0.0f, -0.5f));
    const Answer skyrl = AnswerOf(AboveZero(
        current, "skyrl",
        R"({"policy_loss_type": "dppo", "dppo": {"dppo_type": "binary_kl",
            "delta_low": 0.05, "delta_high": 0.05}})"));
    ASSERT_THAT(skyrl.violations, IsEmpty());
    EXPECT_LT(skyrl.gradient()[0], -9.0f);
  }
}

TEST(CodecLoss, LogProbsAboveZeroAreWarnedAboutInEveryDialect) {
  const std::pair<std::string, std::string> blocks[] = {
      {"verl", R"({"policy_loss": {"loss_mode": "vanilla"}})"},
      {"trl", R"({"vllm_importance_sampling_correction": false})"},
      {"skyrl", R"({"policy_loss_type": "regular"})"},
      {"openrlhf", R"({"policy_loss_type": "ppo", "token_level_loss": true})"}};
  const auto warns = Contains(HasSubstr("positive_log_probs: 1 of 2 tokens"));
  for (const auto& [system, block] : blocks) {
    const Answer above = AnswerOf(AboveZero(1e-7f, system, block));
    ASSERT_THAT(above.violations, IsEmpty()) << system;
    EXPECT_THAT(above.response.warnings(), warns) << system;
    v1::CorrectRequest request = AboveZero(0.0f, system, block);
    EXPECT_THAT(AnswerOf(request).response.warnings(), Not(warns)) << system;
  }
  v1::CorrectRequest request = AboveZero(1e-7f, "verl", "{}");
  request.mutable_method()->mutable_preset()->set_name("ppo_clip");
  const Answer preset = AnswerOf(request);
  EXPECT_THAT(preset.response.warnings(), warns);
  EXPECT_EQ(preset.response.metrics().at("positive_log_probs"), 1);
}

}  // namespace
}  // namespace counterweight::server
