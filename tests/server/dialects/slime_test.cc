// Parts of slime's and miles' blocks that the goldens do not cover, and their
// specs.
#include "server/engine/dialects/slime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/block_reader.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Bound;
using kernels::Level;
using kernels::LogRatio;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kMis[] =
    R"("custom_tis_function_path":
    "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp")";

Translation Slime(const std::string& json,
                  const RequestFacts& facts = AllTensors()) {
  return TranslateSlime(Block(json), false, facts);
}

Translation Miles(const std::string& json,
                  const RequestFacts& facts = AllTensors()) {
  return TranslateMiles(Block(json), false, facts);
}

// A block with MIS on, and more fields.
Translation Mis(const std::string& fields) {
  return Slime(Concat(R"({"use_tis": true, )", kMis, ", ", fields, "}"));
}

RequestFacts WithoutOld() {
  RequestFacts facts = AllTensors();
  facts.has_old_log_probs = false;
  return facts;
}

TEST(SlimeTest, EmptyBlockIsPpoWithoutCorrection) {
  const Translation t = Slime("{}");
  EXPECT_THAT(Fields(t), IsEmpty());
  // All are compared: the rollout's by train_rollout_logprob_abs_diff.
  EXPECT_THAT(t.warnings, IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kNone);
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(t.spec.loss.clip_high, 0.2);
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kRows);
  EXPECT_EQ(t.spec.loss.reduction.row, RowCount::kTokens);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(SlimeTest, MisDropsByMaskThenRejectionThenVeto) {
  const Translation t =
      Mis(R"("tis_mode": "mask", "tis_level": "sequence", "use_rs": true,
             "rs_level": "geometric", "rs_upper_bound": 4,
             "rs_veto_threshold": 0.001)");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.rule_names, ElementsAre("tis_mask", "rs", "rs_veto"));
  const kernels::RejectionRule* rules = t.spec.rules;
  EXPECT_EQ(rules[0].aggregation, Aggregation::kSum);
  EXPECT_EQ(rules[0].aggregate_clamp, 20.0);
  EXPECT_EQ(rules[0].lower, LogRatio(0.5));
  EXPECT_EQ(rules[0].upper, LogRatio(2.0));
  // rs_lower_bound is the weight's lower bound, which is 1 / tis_upper_bound.
  EXPECT_EQ(rules[1].aggregation, Aggregation::kMean);
  EXPECT_EQ(rules[1].lower, LogRatio(0.5));
  EXPECT_EQ(rules[1].upper, LogRatio(4.0));
  EXPECT_EQ(rules[2].aggregation, Aggregation::kAll);
  EXPECT_EQ(rules[2].token_clamp, kernels::kUnbounded);
  EXPECT_EQ(rules[2].lower, LogRatio(0.001));
  EXPECT_EQ(t.spec.weight.level, Level::kSequence);
  EXPECT_EQ(t.spec.weight.bound, Bound::kNone);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(SlimeTest, TruncationHasNoLowerBound) {
  const Translation t = Mis(R"("tis_lower_bound": 0.5)");
  EXPECT_EQ(t.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(t.spec.weight.lower, 0.0);
  EXPECT_EQ(Mis(R"("tis_lower_bound": 3)").violations.size(), 0U);
  EXPECT_THAT(Fields(Mis(R"("tis_lower_bound": 3, "tis_mode": "clip")")),
              ElementsAre("tis_lower_bound"));
}

TEST(SlimeTest, CurrentStandsForAbsentOldWithAWarning) {
  const Translation t = Slime(R"({"use_tis": true})", WithoutOld());
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("no old_log_probs")));
  EXPECT_EQ(t.spec.loss.source, RatioSource::kCurrentSelf);
  EXPECT_EQ(t.spec.weight.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentRollout);
}

TEST(SlimeTest, MilesNeedsOldUnlessItSkipsThem) {
  EXPECT_THAT(Fields(Miles("{}", WithoutOld())),
              ElementsAre("tensors[OLD_LOG_PROBS]"));
  EXPECT_THAT(Fields(Miles(R"({"use_rollout_logprobs": true})", WithoutOld())),
              IsEmpty());
  // The old ones are not read then.
  const Translation t = Miles(R"({"skip_actor_forward_only": true})");
  EXPECT_EQ(t.spec.loss.source, RatioSource::kCurrentSelf);
}

TEST(SlimeTest, MilesClampsThePolicyRatioAndHasNoCispo) {
  EXPECT_EQ(Miles("{}").spec.loss.log_ratio_upper, 20.0);
  EXPECT_EQ(Slime("{}").spec.loss.log_ratio_upper, kernels::LossSpec::kNoBound);
  EXPECT_THAT(Fields(Miles(R"({"advantage_estimator": "cispo"})")),
              ElementsAre("advantage_estimator"));
  EXPECT_THAT(Fields(Slime(R"({"skip_actor_forward_only": true})")),
              ElementsAre("skip_actor_forward_only"));
}

TEST(SlimeTest, DivisorsAreOfRolloutsAndAtLeastOne) {
  const Translation t = Slime(
      R"({"rollout_mask_sums": [7, 7, 0, 3, 2], "step_global_batch_size": 4})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.row_divisors, ElementsAre(7.0, 7.0, 1.0, 3.0, 2.0));
  EXPECT_EQ(t.spec.loss.reduction.row, RowCount::kGiven);
  EXPECT_EQ(t.spec.loss.reduction.count, BatchCount::kOne);
  EXPECT_EQ(t.spec.loss.reduction.scale, 0.25);
  // A sum of tokens has none.
  EXPECT_THAT(Slime(R"({"rollout_mask_sums": [7, 7, 0, 3, 2],
                        "calculate_per_token_loss": true})")
                  .row_divisors,
              IsEmpty());
  for (const char* sums : {"[7, 7]", "[7, 7, 0, 3, -1]", R"([1, 1, 1, 1, "a"])",
                           "7", "[1, 1, 1, 1, 1, 1]"}) {
    EXPECT_THAT(Fields(Slime(Concat(R"({"rollout_mask_sums": )", sums, "}"))),
                ElementsAre("rollout_mask_sums"))
        << sums;
  }
}

TEST(SlimeTest, OpsmZeroesWeightsOfOne) {
  const Translation t = Slime(R"({"use_opsm": true, "opsm_delta": 0.25})");
  ASSERT_EQ(t.spec.num_rules, 1);
  EXPECT_EQ(t.spec.rules[0].effect, kernels::Effect::kZeroWeight);
  EXPECT_EQ(t.spec.rules[0].source, RatioSource::kCurrentOld);
  EXPECT_EQ(t.spec.rules[0].lower, -0.25);
  EXPECT_EQ(t.spec.weight.upper, 1.0);
  EXPECT_EQ(t.spec.weight.lower, 1.0);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(SlimeTest, OpsmLeavesTheWeightsOfTis) {
  const Translation t = Slime(R"({"use_opsm": true, "use_tis": true})");
  EXPECT_THAT(Fields(t), IsEmpty());
  ASSERT_EQ(t.spec.num_rules, 1);
  EXPECT_TRUE(t.last_rule_spares_weights);
  EXPECT_EQ(t.spec.weight.upper, 2.0);
  EXPECT_FALSE(Slime(R"({"use_opsm": true})").last_rule_spares_weights);
}

TEST(SlimeTest, SettingsWithoutEffectAreWarnedOf) {
  for (const std::string& json :
       {Concat("{", kMis, "}"),
        Concat(R"({"use_tis": true, "rs_veto_threshold": 0.1, )", kMis, "}"),
        Concat(R"({"get_mismatch_metrics": true, "use_rs": true, )", kMis,
               "}")}) {
    const Translation t = Slime(json);
    EXPECT_THAT(Fields(t), IsEmpty()) << json;
    ASSERT_THAT(t.warnings, testing::Not(IsEmpty())) << json;
    EXPECT_THAT(t.warnings.front(), HasSubstr("does nothing")) << json;
  }
}

TEST(SlimeTest, Refusals) {
  const std::string icepop =
      R"("custom_tis_function_path":
         "slime.backends.megatron_utils.loss.icepop_function")";
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {R"({"use_tiss": true})", "use_tiss"},
      {R"({"use_tis": 1})", "use_tis"},
      {R"({"advantage_estimator": "grpoo"})", "advantage_estimator"},
      {R"({"eps_clip": -0.1})", "eps_clip"},
      {R"({"eps_clip_c": 1})", "eps_clip_c"},
      {R"({"use_tis": true, "tis_clip": 0})", "tis_clip"},
      {R"({"use_tis": true, "tis_clip_low": 3})", "tis_clip_low"},
      {R"({"custom_tis_function_path": "mine.weights"})",
       "custom_tis_function_path"},
      {R"({"get_mismatch_metrics": true})", "custom_tis_function_path"},
      {Concat(R"({"get_mismatch_metrics": true, )", icepop, "}"),
       "get_mismatch_metrics"},
      {R"({"use_tis": true, "use_rollout_logprobs": true})", "use_tis"},
      {R"({"entropy_coef": 0.1})", "entropy_coef"},
      {R"({"use_opd": true})", "use_opd"},
      {R"({"custom_pg_loss_reducer_function_path": "mine.mean"})",
       "custom_pg_loss_reducer_function_path"},
      {R"({"use_kl_loss": true, "kl_loss_type": "k4"})", "kl_loss_type"},
      {R"({"kl_coef": 0.1, "kl_loss_coef": 0.1})", "kl_coef"},
      {R"({"use_opsm": true, "opsm_delta": -1})", "opsm_delta"},
      {R"({"step_global_batch_size": 0})", "step_global_batch_size"},
  };
  for (const auto& [json, field] : refusals) {
    EXPECT_THAT(Fields(Slime(json)), ElementsAre(field)) << json;
  }
  for (
      const std::string fields :
      {R"("use_rs": true, "rs_lower_bound": 1e9, "rs_upper_bound": 1e10)",
       R"("use_rs": true, "rs_lower_bound": 1e-12, "rs_upper_bound": 1e-11)"}) {
    EXPECT_THAT(Fields(Mis(fields)), ElementsAre("rs_lower_bound")) << fields;
  }
}

TEST(SlimeTest, EmptyRowsCountAsOneTokenAndAsWeightsOfZero) {
  const Translation by_token = Slime(R"({"calculate_per_token_loss": true})");
  EXPECT_EQ(by_token.spec.loss.reduction.count, BatchCount::kRowTokens);
  EXPECT_TRUE(Mis(R"("tis_level": "sequence", "tis_batch_normalize": true)")
                  .spec.weight.counts_empty_rows);
}

TEST(SlimeTest, UnbiasedKlIsBoundedAsAProductAndOfTokens) {
  const auto kl = [](std::string_view type, std::string_view estimator) {
    return Slime(Concat(R"({"use_kl_loss": true, "use_unbiased_kl": true,
                            "kl_loss_type": ")",
                        type, R"(", "advantage_estimator": ")", estimator,
                        R"("})"))
        .spec.loss.kl;
  };
  EXPECT_TRUE(kl("low_var_kl", "grpo").clamps_product);
  EXPECT_FALSE(kl("low_var_kl", "grpo").has_own_ratio);
  EXPECT_FALSE(kl("k3", "grpo").clamps_product);
  EXPECT_TRUE(kl("k3", "gspo").has_own_ratio);
  EXPECT_EQ(kl("k3", "gspo").ratio_source, RatioSource::kCurrentOld);
  EXPECT_TRUE(kl("low_var_kl", "gspo").ratio_always_moves);
}

TEST(SlimeTest, CountsOfTheRequestAreRefused) {
  EXPECT_THAT(Slime("{}").counts_use.refusal,
              HasSubstr("step_global_batch_size"));
  EXPECT_THAT(Slime(R"({"calculate_per_token_loss": true})").counts_use.refusal,
              HasSubstr("calculate_per_token_loss"));
}

}  // namespace
}  // namespace counterweight::server
