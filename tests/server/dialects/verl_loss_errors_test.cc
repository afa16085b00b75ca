// Invalid policy losses of a block, and the tensors that a request must send
// for a valid one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/engine/dialects/verl_loss.h"
#include "tests/server/dialects/verl_loss_blocks.h"

namespace counterweight::server {
namespace {

using kernels::RatioSource;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(VerlLossErrorsTest, FieldsThatAModeDoesNotReadAreNotChecked) {
  EXPECT_THAT(TranslateLoss(R"({"loss_mode": "gpg", "clip_ratio_c": 0.5,
                                "tau_pos": -1, "dro_beta": 0})")
                  .violations,
              IsEmpty());
}

TEST(VerlLossErrorsTest, MeansOverRanksNeedGlobalCounts) {
  EXPECT_THAT(Fields(TranslateLoss(R"({"global_batch_info": {"dp_size": 2}})")),
              ElementsAre("policy_loss.global_batch_info.batch_num_tokens"));
  EXPECT_THAT(
      Fields(TranslateLoss(R"({"loss_mode": "sapo", "use_kl_loss": true,
                               "global_batch_info": {"dp_size": 2}})")),
      UnorderedElementsAre("policy_loss.global_batch_info.batch_num_tokens",
                           "policy_loss.global_batch_info.global_batch_size"));
  EXPECT_THAT(TranslateLoss(R"({"loss_agg_mode": "token-sum",
                                "global_batch_info": {"dp_size": 2}})")
                  .violations,
              IsEmpty());
}

// The counts of the step are given, and something of a loss stays within a
// call.
TEST(VerlLossErrorsTest, WhatDoesNotAddUpOverCallsIsMentioned) {
  const auto warnings = [](const std::string& more, const std::string& policy) {
    return Translate("{" + more + R"("policy_loss": {)" + policy +
                     R"("global_batch_info": {"batch_num_tokens": 99,
                                              "global_batch_size": 9}}})")
        .warnings;
  };
  EXPECT_THAT(warnings("", ""), IsEmpty());
  EXPECT_THAT(
      warnings("", R"("loss_mode": "kl_cov",)"),
      ElementsAre(HasSubstr("selects tokens among those of each call")));
  EXPECT_THAT(warnings("", R"("loss_agg_mode": "seq-mean-token-sum-norm",)"),
              ElementsAre(HasSubstr("loss_scale_factor is absent")));
  EXPECT_THAT(warnings(R"("rollout_is": "token", "rollout_is_threshold": 2.0,
                          "rollout_is_batch_normalize": true,)",
                       ""),
              ElementsAre(HasSubstr("the mean weight of each call")));
}

TEST(VerlLossErrorsTest, LossModeMustSuitTheBypass) {
  for (const char* mode : {"bypass_mode", "reinforce"}) {
    EXPECT_THAT(Fields(TranslateLoss(std::string(R"({"loss_mode": ")") + mode +
                                     R"("})")),
                ElementsAre("policy_loss.loss_mode"));
  }
  const Translation gspo = Translate(
      R"({"bypass_mode": true, "policy_loss": {"loss_mode": "gspo"}})");
  ASSERT_THAT(Fields(gspo), ElementsAre("policy_loss.loss_mode"));
  EXPECT_THAT(gspo.violations[0].description,
              HasSubstr("the other ignores the bypass"));
}

TEST(VerlLossErrorsTest, FindsEverythingAtOnce) {
  EXPECT_THAT(Fields(TranslateLoss(
                  R"({"loss_mode": "vanila", "loss_agg_mode": "mean",
              "use_kl_loss": true, "kl_loss_type": "full",
              "kl_loss_coef": -1, "entropy_coeff": 0.01, "clip_ratio_hi": 1,
              "global_batch_info": {"dp_size": 0, "loss_scale_factor": 2}})")),
              UnorderedElementsAre(
                  "policy_loss.loss_mode", "policy_loss.loss_agg_mode",
                  "policy_loss.kl_loss_type", "policy_loss.kl_loss_coef",
                  "policy_loss.entropy_coeff", "policy_loss.clip_ratio_hi",
                  "policy_loss.global_batch_info.dp_size",
                  "policy_loss.global_batch_info.loss_scale_factor"));
}

TEST(VerlLossErrorsTest, FieldsThatAModeReadsAreChecked) {
  const auto fields = [](const std::string& policy_loss) {
    return Fields(TranslateLoss(policy_loss));
  };
  EXPECT_THAT(fields(R"({"clip_ratio_c": 1, "clip_ratio_low": -0.1,
                         "clip_ratio_high": "0.2"})"),
              UnorderedElementsAre("policy_loss.clip_ratio_c",
                                   "policy_loss.clip_ratio_low",
                                   "policy_loss.clip_ratio_high"));
  EXPECT_THAT(
      fields(R"({"loss_mode": "sapo", "tau_pos": 0, "tau_neg": null})"),
      UnorderedElementsAre("policy_loss.tau_pos", "policy_loss.tau_neg"));
  EXPECT_THAT(fields(R"({"loss_mode": "dro"})"),
              ElementsAre("policy_loss.dro_beta"));
  EXPECT_THAT(fields(R"({"loss_mode": "clip_cov", "clip_cov_ratio": 0})"),
              ElementsAre("policy_loss.clip_cov_ratio"));
  EXPECT_THAT(fields(R"({"loss_mode": "kl_cov", "kl_cov_ratio": 1.5})"),
              ElementsAre("policy_loss.kl_cov_ratio"));
}

// No later step checks a translation.
TEST(VerlLossErrorsTest, ExtremeNumbersMakeValidSpecsOrViolations) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"vanilla", "clip_ratio_low"},
      {"vanilla", "clip_ratio_c"},
      {"dppo_tv", "clip_ratio_c"},
      {"sapo", "tau_pos"},
      {"sapo", "tau_neg"},
      {"dro", "dro_beta"},
      {"clip_cov", "clip_cov_lb"},
      {"clip_cov", "clip_cov_ub"},
      {"clip_cov", "clip_cov_ratio"},
      {"kl_cov", "kl_cov_ratio"},
      {"kl_cov", "ppo_kl_coef"},
      {"vanilla", "loss_scale_factor"},
      {"vanilla", "kl_loss_coef"},
  };
  for (const auto& [mode, field] : fields) {
    for (const char* number : {"-1e308", "-1", "0", "5e-324", "1e-300", "1",
                               "1.5", "1e39", "1e308"}) {
      const Translation t =
          TranslateLoss(R"({"loss_mode": ")" + mode + R"(", "use_kl_loss": true,
              "loss_agg_mode": "seq-mean-token-sum-norm",
              ")" + field +
                        R"(": )" + number + "}");
      if (t.violations.empty()) {
        EXPECT_THAT(kernels::Validate(t.spec), IsEmpty())
            << field << " " << number;
      } else {
        EXPECT_THAT(Fields(t), ElementsAre("policy_loss." + field));
      }
    }
  }
}

TEST(VerlLossErrorsTest, UnknownFieldsCanBeIgnored) {
  const Translation t =
      Translate(R"({"policy_loss": {"clip_ratio_hi": 1}})", LossFacts(), true);
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("clip_ratio_hi")));
}

TEST(VerlLossErrorsTest, NamesMissingTensors) {
  RequestFacts nothing;
  nothing.wants_loss = true;
  EXPECT_THAT(Fields(Translate(R"({"rollout_is": "token", "policy_loss":
                                   {"use_kl_loss": true}})",
                               nothing)),
              UnorderedElementsAre(
                  "tensors[ROLLOUT_LOG_PROBS]", "tensors[OLD_LOG_PROBS]",
                  "tensors[CURRENT_LOG_PROBS]", "tensors[ADVANTAGES]",
                  "tensors[REF_LOG_PROBS]"));
  EXPECT_THAT(Fields(Translate(R"({"bypass_mode": true})", nothing)),
              UnorderedElementsAre("tensors[ROLLOUT_LOG_PROBS]",
                                   "tensors[CURRENT_LOG_PROBS]",
                                   "tensors[ADVANTAGES]"));
}

TEST(VerlLossErrorsTest, ALossAloneNeedsNoRollout) {
  RequestFacts facts = LossFacts();
  facts.has_rollout_log_probs = false;
  const Translation t = TranslateLoss(R"({"loss_mode": "cispo"})", facts);
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.drift_source, RatioSource::kCurrentOld);
  MetricMap metrics;
  Violations violations;
  t.report(kernels::BatchSums{}, &metrics, &violations);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_THAT(metrics, UnorderedElementsAre(
                           testing::Pair("actor/ppo_kl", 0.0),
                           testing::Pair("actor/pg_clipfrac", 0.0),
                           testing::Pair("actor/pg_clipfrac_lower", 0.0)));
}

TEST(VerlLossErrorsTest, TheTreesActorIsReadWhereALossIsAskedFor) {
  const std::string tree = R"({"actor_rollout_ref": {"actor": {
      "entropy_coeff": 0.001, "policy_loss": {"loss_mode": "mine"}}}})";
  EXPECT_THAT(
      Fields(Translate(tree)),
      UnorderedElementsAre("actor_rollout_ref.actor.entropy_coeff",
                           "actor_rollout_ref.actor.policy_loss.loss_mode"));
  RequestFacts facts = LossFacts();
  facts.wants_loss = false;
  EXPECT_THAT(Translate(tree, facts).violations, IsEmpty());
}

}  // namespace
}  // namespace counterweight::server
