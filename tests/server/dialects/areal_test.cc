// Parts of AReaL's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/areal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/other_fields.h"
#include "server/engine/names.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/token_metrics.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Bound;
using kernels::Effect;
using kernels::Estimator;
using kernels::InputRole;
using kernels::Level;
using kernels::LogRatio;
using kernels::LossLevel;
using kernels::LossReduction;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsNan;

Translation Areal(const std::string& json,
                  const RequestFacts& facts = AllTensors()) {
  return TranslateAreal(Block(json), false, facts);
}

// A decoupled loss with that rejection_sampling.
Translation Rejecting(const std::string& fields) {
  return Areal(Concat(R"({"use_decoupled_loss": true,
                          "rejection_sampling": {)",
                      fields, "}}"));
}

TEST(ArealTest, EmptyBlockIsTheDefaultObject) {
  const Translation empty = Areal("{}");
  EXPECT_THAT(Fields(empty), IsEmpty());
  EXPECT_THAT(empty.warnings, ElementsAre(HasSubstr("old_log_probs was sent")));
  const Translation object = Areal(
      R"({"eps_clip": 0.2, "eps_clip_higher": null, "c_clip": null,
          "m2_threshold": null, "importance_sampling_level": "token",
          "use_sapo_loss": false, "sapo_tau_pos": 1.0, "sapo_tau_neg": 1.05,
          "use_cispo_loss": false, "recompute_logprob": false,
          "use_decoupled_loss": false, "prox_logp_method": "recompute",
          "rejection_sampling": null})");
  EXPECT_EQ(empty.spec, object.spec);
  EXPECT_EQ(empty.spec.weight.level, Level::kNone);
  EXPECT_EQ(empty.spec.num_rules, 0);
  const kernels::LossSpec& loss = empty.spec.loss;
  EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(loss.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(loss.clip_high, 0.2);
  EXPECT_EQ(loss.reduction,
            (LossReduction{BatchCount::kTokens, RowCount::kOne, 1.0}));
  EXPECT_THAT(kernels::Validate(empty.spec), IsEmpty());
}

// A field of each kind of value that AReaL's object has.
google::protobuf::Struct WholeActor(const std::string& json) {
  google::protobuf::Struct actor = Block(json);
  const auto values =
      Block(R"({"0": null, "1": {"lr": 1e-5}, "2": [1], "3": "x"})");
  int i = 0;
  for (const std::string_view field : kArealOtherFields) {
    (*actor.mutable_fields())[std::string(field)] =
        values.fields().at(std::to_string(i++ % 4));
  }
  return actor;
}

TEST(ArealTest, TakesAWholeActor) {
  const auto actor = WholeActor(R"({"eps_clip": 0.3, "c_clip": 3})");
  EXPECT_GT(actor.fields_size(), 60);
  const Translation whole = TranslateAreal(actor, false, AllTensors());
  const Translation part = Areal(R"({"eps_clip": 0.3, "c_clip": 3})");
  EXPECT_THAT(Fields(whole), IsEmpty());
  EXPECT_EQ(whole.spec, part.spec);
  EXPECT_EQ(whole.warnings, part.warnings);
  const Translation typo = TranslateAreal(
      WholeActor(R"({"esp_clip": 0.3, "grad_reduce_dtyp": "float32"})"), false,
      AllTensors());
  ASSERT_THAT(Fields(typo), ElementsAre("esp_clip", "grad_reduce_dtyp"));
  EXPECT_THAT(typo.violations[0].description, HasSubstr("'eps_clip'?"));
  EXPECT_THAT(typo.violations[1].description,
              HasSubstr("'grad_reduce_dtype'?"));
}

TEST(ArealTest, TakesAWholeTree) {
  google::protobuf::Struct tree =
      Block(R"({"experiment_name": "e", "my_own": 1, "actor": {}})");
  *(*tree.mutable_fields())["actor"].mutable_struct_value() =
      WholeActor(R"({"use_decoupled_loss": true})");
  const Translation whole = TranslateAreal(tree, false, AllTensors());
  EXPECT_THAT(Fields(whole), IsEmpty());
  EXPECT_EQ(whole.spec, Areal(R"({"use_decoupled_loss": true})").spec);
  EXPECT_EQ(Areal(R"({"actor": null})").spec, Areal("{}").spec);
  EXPECT_THAT(Fields(Areal(R"({"actor": {"esp_clip": 1}})")),
              ElementsAre("actor.esp_clip"));
  EXPECT_THAT(Fields(Areal(R"({"actor": {"rejection_sampling": {"cap": 2}}})")),
              ElementsAre("actor.rejection_sampling.cap"));
  EXPECT_THAT(Fields(Areal(R"({"actor": {}, "eps_clip": 0.3})")),
              ElementsAre("eps_clip"));
  EXPECT_THAT(Fields(Areal(R"({"actor": 5})")), ElementsAre("actor"));
}

TEST(ArealTest, PoliciesFollowTheBlock) {
  struct Case {
    const char* json;
    RatioSource loss;
    RatioSource drift;
  };
  for (const auto& [json, loss, drift] :
       {Case{"{}", RatioSource::kCurrentRollout, RatioSource::kCurrentRollout},
        Case{R"({"recompute_logprob": true})", RatioSource::kCurrentOld,
             RatioSource::kCurrentOld},
        Case{R"({"use_decoupled_loss": true})", RatioSource::kCurrentOld,
             RatioSource::kOldRollout},
        Case{R"({"use_decoupled_loss": true,
                 "prox_logp_method": "reuse_train_logp"})",
             RatioSource::kCurrentSelf, RatioSource::kCurrentRollout}}) {
    const Translation t = Areal(json);
    EXPECT_THAT(Fields(t), IsEmpty()) << json;
    EXPECT_EQ(t.spec.loss.source, loss) << json;
    EXPECT_EQ(t.spec.drift_source, drift) << json;
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty()) << json;
  }
}

TEST(ArealTest, RejectedTokensLoseWeightAndMask) {
  struct Case {
    const char* metric;
    Estimator estimator;
    double upper;
    Level level;
  };
  for (const auto& [metric, estimator, upper, level] :
       {Case{"ratio", Estimator::kRatio, LogRatio(2.0), Level::kGeometric},
        Case{"kl_k1", Estimator::kRatio, 2.0, Level::kToken},
        Case{"kl_k2", Estimator::kK2, 2.0, Level::kToken},
        Case{"kl_k3", Estimator::kReverseK3, 2.0, Level::kToken}}) {
    const Translation t =
        Rejecting(Concat(R"("level": "sequence", "agg": "sum", "upper": 2,
                            "metric": ")",
                         metric, "\""));
    EXPECT_THAT(Fields(t), IsEmpty()) << metric;
    EXPECT_EQ(t.spec.weight.level, level) << metric;
    EXPECT_EQ(t.spec.weight.bound, Bound::kNone);
    ASSERT_EQ(t.spec.num_rules, 2);
    EXPECT_EQ(t.spec.rules[0].effect, Effect::kZeroWeight);
    EXPECT_EQ(t.spec.rules[1].effect, Effect::kDrop);
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(t.spec.rules[r].estimator, estimator) << metric;
      EXPECT_EQ(t.spec.rules[r].aggregation, Aggregation::kSum);
      EXPECT_EQ(t.spec.rules[r].upper, upper) << metric;
      EXPECT_EQ(t.spec.rules[r].lower, -kernels::kUnbounded);
    }
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  }
}

TEST(ArealTest, ClampsBoundTheWeightAlone) {
  const Translation token =
      Rejecting(R"("action": "clamp", "lower": 0.5, "upper": 2)");
  EXPECT_EQ(token.spec.num_rules, 0);
  EXPECT_EQ(token.spec.weight.level, Level::kToken);
  EXPECT_EQ(token.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(token.spec.weight.lower, 0.5);
  EXPECT_EQ(token.spec.weight.upper, 2.0);
  const Translation row =
      Rejecting(R"("action": "clamp", "level": "sequence")");
  EXPECT_EQ(row.spec.weight.level, Level::kGeometric);
  EXPECT_EQ(row.spec.weight.lower, 0.0);
  EXPECT_EQ(row.spec.weight.upper, 5.0);
  // AReaL's object has 0 then.
  const Translation zero =
      Rejecting(R"("action": "clamp", "level": "sequence", "lower": 0)");
  EXPECT_THAT(Fields(zero), IsEmpty());
  EXPECT_EQ(zero.spec, row.spec);
}

// Without use_decoupled_loss the two policies are one.
TEST(ArealTest, APolicyComparedWithItselfHasTheWeightOne) {
  const Translation t = Areal(R"({"rejection_sampling": {"upper": 2}})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.weight.lower, 1.0);
  EXPECT_EQ(t.spec.weight.upper, 1.0);
  EXPECT_THAT(t.warnings, Contains(HasSubstr("compares a policy with itself")));
  for (const char* bounds :
       {R"("lower": 1.5, "upper": 2)", R"("metric": "kl_k1", "upper": -1)",
        R"("metric": "kl_k2", "lower": 0.1, "upper": 1)"}) {
    EXPECT_THAT(
        Fields(Areal(Concat(R"({"rejection_sampling": {)", bounds, "}}"))),
        ElementsAre("rejection_sampling"))
        << bounds;
  }
}

TEST(ArealTest, ASequenceHasTheMeanAdvantageOfItsKeptTokens) {
  const Translation t = Areal(R"({"importance_sampling_level": "sequence"})");
  EXPECT_EQ(t.spec.loss.level, LossLevel::kSequence);
  EXPECT_EQ(t.spec.loss.over, kernels::TokenSet::kKept);
  EXPECT_TRUE(t.spec.loss.averages_advantages);
  EXPECT_FALSE(Areal("{}").spec.loss.averages_advantages);
}

TEST(ArealTest, SettingsWithoutEffectAreWarnedOf) {
  struct Case {
    const char* json;
    const char* warning;
  };
  for (const auto& [json, warning] :
       {Case{R"({"prox_logp_method": "loglinear"})", "prox_logp_method does"},
        Case{R"({"current_version": 3})", "current_version does nothing"},
        Case{R"({"use_sapo_loss": true, "c_clip": 3})", "c_clip does nothing"},
        Case{R"({"use_sapo_loss": true, "rejection_sampling": {}})",
             "rejection_sampling does nothing"},
        Case{R"({"use_decoupled_loss": true,
                 "rejection_sampling": {"agg": "max"}})",
             "agg does nothing"}}) {
    const Translation t = Areal(json);
    EXPECT_THAT(Fields(t), IsEmpty()) << json;
    EXPECT_THAT(t.warnings, Contains(HasSubstr(warning))) << json;
  }
}

TEST(ArealTest, Refusals) {
  constexpr Refusal kRefusals[] = {
      {R"({"eps_clip_high": 0.2})", "eps_clip_high"},
      {R"({"eps_clip": -0.1})", "eps_clip"},
      {R"({"c_clip": 1})", "c_clip"},
      {R"({"m2_threshold": 0.04})", "m2_threshold"},
      {R"({"importance_sampling_level": "row"})", "importance_sampling_level"},
      {R"({"use_decoupled_loss": true, "prox_logp_method": "loglinear"})",
       "prox_logp_method"},
      {R"({"use_decoupled_loss": true, "prox_logp_method": "metrics"})",
       "prox_logp_method"},
      {R"({"use_sapo_loss": true, "sapo_tau_neg": 0})", "sapo_tau_neg"},
      {R"({"use_sapo_loss": true, "use_decoupled_loss": true})",
       "use_decoupled_loss"},
      {R"({"use_sapo_loss": true, "use_cispo_loss": true})", "use_cispo_loss"},
      {R"({"use_cispo_loss": true})", "eps_clip_higher"},
      {R"({"use_cispo_loss": true, "eps_clip_higher": 0})", "eps_clip_higher"},
      {R"({"use_cispo_loss": true, "eps_clip_higher": 4,
           "importance_sampling_level": "sequence"})",
       "importance_sampling_level"},
      {R"({"rejection_sampling": {"upper": 1}})", "rejection_sampling.upper"},
      {R"({"rejection_sampling": {"lower": 0}})", "rejection_sampling.lower"},
      {R"({"rejection_sampling": {"cap": 2}})", "rejection_sampling.cap"},
      {R"({"rejection_sampling": {"metric": "kl_k3", "upper": 0}})",
       "rejection_sampling.upper"},
      {R"({"use_decoupled_loss": true, "rejection_sampling":
           {"metric": "kl_k1", "lower": 2, "upper": 1}})",
       "rejection_sampling.lower"},
      {R"({"use_decoupled_loss": true, "rejection_sampling":
           {"metric": "kl_k1", "action": "clamp"}})",
       "rejection_sampling.action"},
      {R"({"use_decoupled_loss": true, "rejection_sampling":
           {"action": "clamp", "level": "sequence", "agg": "sum"}})",
       "rejection_sampling.agg"},
      {R"({"rejection_sampling": 5})", "rejection_sampling"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Fields(Areal(refusal.json)), ElementsAre(refusal.field))
        << refusal.json;
  }
}

TEST(ArealTest, WithoutCurrentLogProbsItRejectsAlone) {
  RequestFacts facts = AllTensors();
  facts.has_current_log_probs = facts.wants_loss = false;
  const std::string json =
      R"({"use_decoupled_loss": true, "rejection_sampling": {}})";
  EXPECT_THAT(Fields(Areal(json, facts)), IsEmpty());
  facts.has_old_log_probs = false;
  EXPECT_THAT(Fields(Areal(json, facts)),
              ElementsAre("tensors[OLD_LOG_PROBS]"));
}

// A prepared call knows the names of an answer before the batch.
TEST(ArealTest, AStatisticOverNoTokenIsNan) {
  const Translation t = Rejecting("");
  kernels::Row row = RowOf({-1.0f, -2.0f});
  row[InputRole::kCurrent] = {-0.9f, -2.1f};
  row[InputRole::kAdvantages] = {1.0f, 1.0f};
  // Rejection took both, and no ratio is clipped.
  const MetricMap metrics = TokenMetricsOf(t, {row}, {0, 0}, {0.0f, 0.0f});
  EXPECT_THAT(metrics.at("clipped_new_logp/avg"), IsNan());
  EXPECT_THAT(metrics.at("clipped_old_logp/max"), IsNan());
  EXPECT_THAT(metrics.at("behave_approx_kl/min"), IsNan());
  EXPECT_THAT(metrics.at("compute_logp/prox_logp_gt/avg"), IsNan());
  EXPECT_EQ(metrics.at("actor_loss/max"), 0.0);
  EXPECT_EQ(metrics.at("old_logp/avg"), -1.5);
  row.mask = {0, 0};
  EXPECT_THAT(TokenMetricsOf(t, {row}, {0, 0}, {0.0f, 0.0f}), IsEmpty());
}

TEST(ArealTest, WithoutBehaviourItsMetricsAreAbsent) {
  RequestFacts facts = AllTensors();
  facts.has_rollout_log_probs = false;
  const Translation t = Areal(R"({"use_decoupled_loss": true})", facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  const MetricMap metrics = TokenMetricsOf(t, {RowOf({-1.0f})}, {1}, {1.0f});
  EXPECT_EQ(metrics.at("new_logp/max"), -1.0);
  EXPECT_EQ(metrics.at("compute_logp/prox_logp_gt/min"), -1.0);
  for (const char* name : {"old_logp/avg", "logp_diff/min", "logp_abs_diff/avg",
                           "clipped_old_logp/avg", "behave_approx_kl/avg"}) {
    EXPECT_FALSE(metrics.contains(name)) << name;
  }
}

}  // namespace
}  // namespace counterweight::server
