#include "server/engine/codec_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/loss_parameters.h"
#include "kernels/methods.h"
#include "server/engine/codec_config.h"
#include "server/engine/codec_spec_fields.h"

namespace counterweight::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RequestFacts AllLogProbs() {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  return facts;
}

Result<Method> Read(const v1::CorrectionConfig& config) {
  v1::Method method;
  *method.mutable_config() = config;
  return ReadMethod(method, AllLogProbs());
}

std::vector<std::string> ConfigFields(const v1::CorrectionConfig& config) {
  std::vector<std::string> fields;
  for (const Violation& violation : Read(config).violations) {
    fields.push_back(violation.field);
  }
  return fields;
}

v1::RejectionRule ValidRule() {
  v1::RejectionRule rule;
  rule.set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  rule.set_estimator(v1::ESTIMATOR_RATIO);
  rule.set_aggregation(v1::AGGREGATION_MEAN);
  rule.set_lower(0.5);
  rule.set_upper(2.0);
  return rule;
}

TEST(CodecMethod, EveryMethodSurvivesTheWireBitForBit) {
  for (const kernels::Method& method : kernels::Methods()) {
    std::vector<kernels::ParameterViolation> none;
    const kernels::CorrectionSpec spec = kernels::MakeSpec(method, {}, &none);
    const auto config = EncodeConfig(spec);
    ASSERT_TRUE(config) << method.name;
    const Result<Method> back = Read(*config);
    EXPECT_THAT(back.violations, IsEmpty()) << method.name;
    EXPECT_TRUE(back.value.spec == spec) << method.name << "\n"
                                         << config->ShortDebugString();
  }
}

TEST(CodecMethod, ShowsBoundsAsTheUserWroteThem) {
  std::vector<kernels::ParameterViolation> none;
  const auto config = EncodeConfig(
      kernels::MakeSpec(*kernels::FindMethod("geo_rs"), {}, &none));
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rules(0).lower(), 0.999);
  EXPECT_EQ(config->rules(0).upper(), 1.001);
}

// A new enum value that the codec lacks fails here by name.
TEST(CodecMethod, EveryEnumValueSurvivesTheWire) {
  const auto round_trip = [](const v1::CorrectionConfig& config) {
    const Result<Method> method = Read(config);
    EXPECT_THAT(method.violations, IsEmpty()) << config.ShortDebugString();
    return EncodeConfig(method.value.spec).value_or(v1::CorrectionConfig());
  };
  v1::CorrectionConfig config;
  *config.add_rules() = ValidRule();
  config.mutable_importance_weight()->set_ratio_source(
      v1::RATIO_SOURCE_OLD_ROLLOUT);
  config.mutable_importance_weight()->set_level(v1::LEVEL_TOKEN);
  config.mutable_importance_weight()->set_bound(v1::BOUND_TRUNCATE);
  config.mutable_importance_weight()->set_upper(2.0);
  v1::RejectionRule& rule = *config.mutable_rules(0);
  v1::ImportanceWeight& weight = *config.mutable_importance_weight();
  for (int i = 1; i < v1::RatioSource_ARRAYSIZE; ++i) {
    rule.set_ratio_source(static_cast<v1::RatioSource>(i));
    weight.set_ratio_source(static_cast<v1::RatioSource>(i));
    config.set_drift_source(static_cast<v1::RatioSource>(i));
    EXPECT_EQ(round_trip(config).rules(0).ratio_source(), i);
    EXPECT_EQ(round_trip(config).importance_weight().ratio_source(), i);
    EXPECT_EQ(round_trip(config).drift_source(), i);
  }
  for (int i = 1; i < v1::Level_ARRAYSIZE; ++i) {
    weight.set_level(static_cast<v1::Level>(i));
    EXPECT_EQ(round_trip(config).importance_weight().level(), i);
  }
  for (int i = v1::BOUND_TRUNCATE; i < v1::Bound_ARRAYSIZE; ++i) {
    weight.set_bound(static_cast<v1::Bound>(i));
    EXPECT_EQ(round_trip(config).importance_weight().bound(), i);
  }
  for (int i = 1; i < v1::Estimator_ARRAYSIZE; ++i) {
    rule.set_estimator(static_cast<v1::Estimator>(i));
    EXPECT_EQ(round_trip(config).rules(0).estimator(), i);
  }
  for (int i = 1; i < v1::Aggregation_ARRAYSIZE; ++i) {
    rule.set_aggregation(static_cast<v1::Aggregation>(i));
    EXPECT_EQ(round_trip(config).rules(0).aggregation(), i);
  }
  for (int i = 1; i < v1::RuleCondition_ARRAYSIZE; ++i) {
    rule.set_condition(static_cast<v1::RuleCondition>(i));
    EXPECT_EQ(round_trip(config).rules(0).condition(), i);
  }
  for (int i = 1; i < v1::RuleEffect_ARRAYSIZE; ++i) {
    rule.set_effect(static_cast<v1::RuleEffect>(i));
    EXPECT_EQ(round_trip(config).rules(0).effect(), i);
  }
  for (int i = 1; i < v1::RuleEvaluation_ARRAYSIZE; ++i) {
    config.set_rule_evaluation(static_cast<v1::RuleEvaluation>(i));
    EXPECT_EQ(round_trip(config).rule_evaluation(), i);
  }
}

TEST(CodecMethod, AbsentChoicesAreNamedAllAtOnce) {
  v1::CorrectionConfig config;
  config.add_rules();
  config.mutable_importance_weight();
  EXPECT_THAT(ConfigFields(config),
              ElementsAre("method.config.rules[0].ratio_source",
                          "method.config.rules[0].estimator",
                          "method.config.rules[0].aggregation",
                          "method.config.rules[0].upper",
                          "method.config.importance_weight.ratio_source",
                          "method.config.importance_weight.level",
                          "method.config.importance_weight.bound"));
}

TEST(CodecMethod, RefusesBoundsThatAreNoRatios) {
  for (double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity()}) {
    v1::CorrectionConfig config;
    *config.add_rules() = ValidRule();
    config.mutable_rules(0)->set_upper(bad);
    EXPECT_THAT(ConfigFields(config), Contains("method.config.rules[0].upper"))
        << bad;
  }
}

TEST(CodecMethod, RefusesAnEmptyInterval) {
  v1::CorrectionConfig config;
  *config.add_rules() = ValidRule();
  config.mutable_rules(0)->set_lower(3.0);
  EXPECT_THAT(ConfigFields(config),
              ElementsAre("method.config.rules[0].lower"));
}

TEST(CodecMethod, RefusesMoreRulesThanThereAreReasonBits) {
  v1::CorrectionConfig config;
  for (int r = 0; r <= kernels::kMaxRules; ++r) {
    *config.add_rules() = ValidRule();
  }
  EXPECT_THAT(ConfigFields(config), ElementsAre("method.config.rules"));
}

TEST(CodecMethod, LossesAreToldWhatTheyLack) {
  v1::CorrectionConfig config;
  config.mutable_policy_loss();
  config.mutable_kl_penalty();
  EXPECT_THAT(ConfigFields(config),
              ElementsAre("method.config.policy_loss.surrogate",
                          "method.config.kl_penalty"));
  config.mutable_policy_loss()->set_surrogate(v1::SURROGATE_PPO_CLIP);
  EXPECT_THAT(ConfigFields(config),
              ElementsAre("method.config.policy_loss.clip_low",
                          "method.config.policy_loss.clip_high",
                          "method.config.policy_loss.denominator",
                          "method.config.kl_penalty.estimator"));
}

TEST(CodecMethod, RuleNamesAreUnique) {
  v1::CorrectionConfig config;
  *config.add_rules() = ValidRule();
  *config.add_rules() = ValidRule();
  EXPECT_THAT(Read(config).value.rule_names,
              ElementsAre("mean_ratio", "mean_ratio_2"));
  config.mutable_rules(0)->set_name("mean_ratio_2");
  EXPECT_THAT(ConfigFields(config), ElementsAre("method.config.rules[0].name"));
  config.mutable_rules(0)->set_name("No spaces");
  EXPECT_THAT(ConfigFields(config), ElementsAre("method.config.rules[0].name"));
}

TEST(CodecMethod, DriftIsOfTheRatioThatCanBeFormed) {
  const auto source = [](bool rollout, bool old) {
    RequestFacts facts = AllLogProbs();
    facts.has_rollout_log_probs = rollout;
    facts.has_old_log_probs = old;
    return DecodeConfig({}, facts).value.drift_source;
  };
  EXPECT_EQ(source(true, true), kernels::RatioSource::kOldRollout);
  EXPECT_EQ(source(true, false), kernels::RatioSource::kCurrentRollout);
  EXPECT_EQ(source(false, true), kernels::RatioSource::kCurrentOld);
}

// A renamed field of the contract with a stale path fails here.
TEST(CodecMethod, EveryPathOfAConfigsViolationExists) {
  const int count = kernels::kNumSpecFields + kernels::kNumLossParameters;
  for (int i = 0; i < count; ++i) {
    const Violation violation =
        ToConfigViolation({static_cast<kernels::SpecField>(i), 0, "reason"});
    std::istringstream path(violation.field);
    const google::protobuf::Descriptor* message = v1::Method::descriptor();
    std::string name;
    std::getline(path, name, '.');
    ASSERT_EQ(name, "method");
    while (std::getline(path, name, '.')) {
      ASSERT_NE(message, nullptr) << violation.field;
      const auto* field =
          message->FindFieldByName(name.substr(0, name.find('[')));
      ASSERT_NE(field, nullptr) << violation.field;
      message = field->message_type();
    }
  }
}

constexpr DatedRelease kReleases[] = {{{1, 0, 0}, ""}};

// Dialects are written by hand; a spec that they fail to refuse must not reach
// kernels, which rely on kernels::Validate.
TEST(CodecMethod, ADialectsSpecThatTheKernelsRefuseIsAnError) {
  const Dialect careless{
      "careless", kReleases,
      [](const google::protobuf::Struct&, bool, const RequestFacts&) {
        Translation translation;
        translation.spec.num_rules = 1;
        translation.spec.rules[0].token_clamp = -1.0;
        translation.spec.weight = {.level = kernels::Level::kToken,
                                   .bound = kernels::Bound::kTruncate,
                                   .lower = 2.0,
                                   .upper = 1.0};
        translation.rule_names = {"careless"};
        return translation;
      }};
  v1::Method method;
  method.mutable_dialect()->set_system("careless");
  const Result<Method> result =
      ReadMethod(method, AllLogProbs(), {&careless, 1});
  ASSERT_EQ(result.violations.size(), 2u);
  for (const Violation& violation : result.violations) {
    EXPECT_EQ(violation.field, "method.dialect.block");
  }
  EXPECT_THAT(result.violations[0].description, HasSubstr("must be <= upper"));
  EXPECT_THAT(result.violations[1].description, HasSubstr("must be > 0 nats"));
}

}  // namespace
}  // namespace counterweight::server
