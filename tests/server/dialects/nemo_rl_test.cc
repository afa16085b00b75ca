// Parts of NeMo RL's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/nemo_rl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/log_ratio.h"
#include "server/engine/names.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Effect;
using kernels::KlEstimator;
using kernels::Level;
using kernels::LogRatio;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Translation NemoRl(const std::string& json,
                   const RequestFacts& facts = AllTensors()) {
  return TranslateNemoRl(Block(json), false, facts);
}

TEST(NemoRlTest, EmptyBlockIsPpoWithAKlPenaltyAndWithoutCorrection) {
  const Translation t = NemoRl("{}");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, IsEmpty());
  EXPECT_EQ(t.spec.weight.lower, 1.0);
  EXPECT_EQ(t.spec.weight.upper, 1.0);
  EXPECT_EQ(t.spec.num_rules, 0);
  const kernels::LossSpec& loss = t.spec.loss;
  EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(loss.reduction.count, BatchCount::kTokens);
  EXPECT_EQ(loss.reduction.row, RowCount::kOne);
  EXPECT_EQ(loss.kl.estimator, KlEstimator::kK3);
  EXPECT_EQ(loss.kl.coefficient, 0.01);
  EXPECT_EQ(loss.kl.token_clamp, 20.0);
  EXPECT_EQ(loss.kl.value_clamp, 10.0);
  EXPECT_EQ(loss.kl.ratio_source, RatioSource::kCurrentSelf);
  EXPECT_TRUE(loss.kl.has_own_ratio);
  EXPECT_TRUE(loss.kl.clamps_product);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(NemoRlTest, AForcedRatioIsReadBeforeADisabledOne) {
  const kernels::CorrectionSpec forced =
      NemoRl(R"({"force_on_policy_ratio": true})").spec;
  EXPECT_EQ(forced.loss.surrogate, Surrogate::kImportanceSampling);
  const Translation both =
      NemoRl(R"({"force_on_policy_ratio": true, "disable_ppo_ratio": true})");
  EXPECT_EQ(both.spec, forced);
}

TEST(NemoRlTest, TheDefaultPenaltyNeedsTheReference) {
  RequestFacts facts = AllTensors();
  facts.has_ref_log_probs = false;
  const Translation t = NemoRl("{}", facts);
  EXPECT_THAT(Fields(t), ElementsAre("tensors[REF_LOG_PROBS]"));
  EXPECT_THAT(t.violations[0].description, HasSubstr("0.01 by default"));
  for (const char* json : {R"({"reference_policy_kl_penalty": 0})",
                           R"({"use_kl_in_reward": true})"}) {
    EXPECT_THAT(Fields(NemoRl(json, facts)), IsEmpty()) << json;
  }
  facts.wants_loss = false;
  EXPECT_THAT(Fields(NemoRl("{}", facts)), IsEmpty());
}

TEST(NemoRlTest, RejectedTokensLoseWeightAndMask) {
  struct Case {
    const char* type;
    Aggregation aggregation;
  };
  for (const auto& [type, aggregation] :
       {Case{"icepop", Aggregation::kToken},
        Case{"seq-mask-tis", Aggregation::kMean}}) {
    const Translation t =
        NemoRl(Concat(R"({"use_importance_sampling_correction": true,
                   "truncated_importance_sampling_ratio": 2,
                   "truncated_importance_sampling_ratio_min": 0.5,
                   "truncated_importance_sampling_type": ")",
                      type, R"("})"));
    EXPECT_THAT(Fields(t), IsEmpty());
    EXPECT_THAT(t.rule_names,
                ElementsAre(Concat(type, "_weight"), Concat(type, "_mask")));
    ASSERT_EQ(t.spec.num_rules, 2);
    EXPECT_EQ(t.spec.rules[0].effect, Effect::kZeroWeight);
    EXPECT_EQ(t.spec.rules[1].effect, Effect::kDrop);
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(t.spec.rules[r].aggregation, aggregation);
      EXPECT_EQ(t.spec.rules[r].lower, LogRatio(0.5));
      EXPECT_EQ(t.spec.rules[r].upper, LogRatio(2.0));
    }
    EXPECT_EQ(t.spec.weight.level, Level::kToken);
    EXPECT_EQ(t.spec.weight.bound, kernels::Bound::kNone);
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  }
}

TEST(NemoRlTest, OnPolicyTheCurrentLogProbsAreTheOldOnes) {
  RequestFacts facts = AllTensors();
  facts.has_old_log_probs = false;
  const std::string json =
      R"({"force_on_policy_ratio": true,
          "use_importance_sampling_correction": true})";
  const Translation t = NemoRl(json, facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kImportanceSampling);
  EXPECT_EQ(t.spec.loss.source, RatioSource::kCurrentSelf);
  EXPECT_EQ(t.spec.weight.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentRollout);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  EXPECT_THAT(NemoRl(json).warnings,
              Contains(HasSubstr("old_log_probs was sent")));
}

TEST(NemoRlTest, GivenCountsAreTheDenominators) {
  const Translation by_token = NemoRl(R"({"global_valid_toks": 40})");
  EXPECT_EQ(by_token.spec.loss.reduction.count, BatchCount::kOne);
  EXPECT_NEAR(by_token.spec.loss.reduction.scale, 0.025, 1e-9);
  EXPECT_EQ(by_token.spec.loss.kl.reduction, by_token.spec.loss.reduction);
  EXPECT_THAT(by_token.counts_use.given_count, HasSubstr("global_valid_toks"));
  const Translation by_row =
      NemoRl(R"({"token_level_loss": false, "global_valid_seqs": 8})");
  EXPECT_EQ(by_row.spec.loss.reduction.row, RowCount::kTokens);
  EXPECT_NEAR(by_row.spec.loss.reduction.scale, 0.125, 1e-9);
  EXPECT_EQ(NemoRl(R"({"token_level_loss": false})").spec.loss.reduction.count,
            BatchCount::kNonemptyRows);
}

TEST(NemoRlTest, SettingsWithoutEffectAreWarnedOf) {
  struct Case {
    const char* json;
    const char* warning;
  };
  for (const auto& [json, warning] :
       {Case{R"({"ratio_clip_c": 3, "disable_ppo_ratio": true})",
             "ratio_clip_c can never bind"},
        Case{R"({"ratio_clip_c": 3, "force_on_policy_ratio": true})",
             "ratio_clip_c can never bind"},
        Case{R"({"truncated_importance_sampling_ratio_min": 0.5})",
             "ratio_min does nothing"},
        Case{R"({"use_on_policy_kl_approximation": true,
                 "reference_policy_kl_penalty": 0})",
             "approximation does nothing"},
        Case{R"({"use_kl_in_reward": true})", "without a KL penalty"},
        Case{R"({"sequence_level_importance_ratios": true,
                 "token_level_loss": false,
                 "use_importance_sampling_correction": true})",
             "the product of the row's ratios"}}) {
    const Translation t = NemoRl(json);
    EXPECT_THAT(Fields(t), IsEmpty()) << json;
    EXPECT_THAT(t.warnings, Contains(HasSubstr(warning))) << json;
  }
}

TEST(NemoRlTest, Refusals) {
  constexpr Refusal kRefusals[] = {
      {R"({"ratio_clip": 0.2})", "ratio_clip"},
      {R"({"ratio_clip_min": -0.1})", "ratio_clip_min"},
      {R"({"ratio_clip_c": 1})", "ratio_clip_c"},
      {R"({"sequence_level_importance_ratios": true})",
       "sequence_level_importance_ratios"},
      {R"({"use_cispo": true, "disable_ppo_ratio": true})",
       "disable_ppo_ratio"},
      {R"({"use_cispo": true, "force_on_policy_ratio": true})",
       "force_on_policy_ratio"},
      {R"({"use_cispo": true, "ratio_clip_c": 3})", "ratio_clip_c"},
      {R"({"use_cispo": true, "token_level_loss": false})", "token_level_loss"},
      {R"({"truncated_importance_sampling_type": "tis",
           "truncated_importance_sampling_ratio": 2})",
       "truncated_importance_sampling_type"},
      {R"({"use_importance_sampling_correction": true,
           "truncated_importance_sampling_type": "tiss",
           "truncated_importance_sampling_ratio": 2})",
       "truncated_importance_sampling_type"},
      {R"({"use_importance_sampling_correction": true,
           "truncated_importance_sampling_type": "tis"})",
       "truncated_importance_sampling_ratio"},
      {R"({"use_importance_sampling_correction": true,
           "truncated_importance_sampling_type": "tis",
           "truncated_importance_sampling_ratio": 0})",
       "truncated_importance_sampling_ratio"},
      {R"({"use_importance_sampling_correction": true,
           "truncated_importance_sampling_type": "icepop",
           "truncated_importance_sampling_ratio": 2})",
       "truncated_importance_sampling_ratio_min"},
      {R"({"use_importance_sampling_correction": true,
           "truncated_importance_sampling_type": "tis",
           "truncated_importance_sampling_ratio": 2,
           "truncated_importance_sampling_ratio_min": 3})",
       "truncated_importance_sampling_ratio_min"},
      {R"({"use_importance_sampling_correction": true,
           "token_level_loss": false,
           "sequence_level_importance_ratios": true,
           "truncated_importance_sampling_type": "seq-mask-tis",
           "truncated_importance_sampling_ratio": 2,
           "truncated_importance_sampling_ratio_min": 0.5})",
       "truncated_importance_sampling_type"},
      {R"({"truncated_importance_sampling_ratio": 2})",
       "truncated_importance_sampling_ratio"},
      {R"({"reference_policy_kl_type": "k4"})", "reference_policy_kl_type"},
      {R"({"reference_policy_kl_penalty": -1})", "reference_policy_kl_penalty"},
      {R"({"kl_output_clamp_value": 0})", "kl_output_clamp_value"},
      {R"({"positive_example_nll_weight": 0.1})",
       "positive_example_nll_weight"},
      {R"({"seq_logprob_error_threshold": -2})", "seq_logprob_error_threshold"},
      {R"({"global_valid_toks": -1})", "global_valid_toks"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Fields(NemoRl(refusal.json)), ElementsAre(refusal.field))
        << refusal.json;
  }
}

TEST(NemoRlTest, TheCorrectionNeedsItsTensors) {
  RequestFacts facts = AllTensors();
  facts.has_rollout_log_probs = false;
  const std::string json = R"({"use_importance_sampling_correction": true})";
  EXPECT_THAT(Fields(NemoRl(json, facts)),
              ElementsAre("tensors[ROLLOUT_LOG_PROBS]"));
  facts = AllTensors();
  facts.has_old_log_probs = false;
  EXPECT_THAT(Fields(NemoRl(json, facts)),
              ElementsAre("tensors[OLD_LOG_PROBS]"));
}

}  // namespace
}  // namespace counterweight::server
