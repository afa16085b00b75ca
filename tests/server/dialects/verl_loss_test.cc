// The loss of a block. The goldens check the numbers.
#include "server/engine/dialects/verl_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/dialects/verl_loss_blocks.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::KlEstimator;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(VerlLossTest, VanillaIsTheDefault) {
  for (const char* block : {"{}", R"({"policy_loss": null})",
                            R"({"policy_loss": {"loss_mode": "vanilla"}})"}) {
    const Translation t = Translate(block);
    EXPECT_THAT(t.violations, IsEmpty());
    const LossSpec& loss = t.spec.loss;
    EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
    EXPECT_EQ(loss.level, LossLevel::kToken);
    EXPECT_EQ(loss.source, RatioSource::kCurrentOld);
    EXPECT_EQ(loss.log_ratio_lower, -20.0);
    EXPECT_EQ(loss.log_ratio_upper, 20.0);
    EXPECT_EQ(loss.clip_low, 0.2);
    EXPECT_EQ(loss.clip_high, 0.2);
    EXPECT_EQ(loss.dual_clip, 3.0);
    EXPECT_EQ(loss.over, TokenSet::kKept);
    EXPECT_EQ(loss.reduction.count, BatchCount::kKeptTokens);
    EXPECT_EQ(loss.reduction.row, RowCount::kOne);
    EXPECT_EQ(loss.reduction.scale, 1.0);
    EXPECT_EQ(loss.kl.estimator, KlEstimator::kNone);
    EXPECT_TRUE(loss.applies_weight);
    EXPECT_TRUE(t.empty_loss_is_nan);
  }
}

TEST(VerlLossTest, NoLossIsComputedUnlessAskedFor) {
  RequestFacts facts = LossFacts();
  facts.wants_loss = false;
  facts.has_advantages = facts.has_current_log_probs = false;
  const Translation t = TranslateLoss(R"({"loss_mode": "gspo"})", facts);
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kNone);
  EXPECT_THAT(Fields(TranslateLoss(R"({"loss_mode": "grpo"})", facts)),
              ElementsAre("policy_loss.loss_mode"));
}

TEST(VerlLossTest, NullClipRatiosAreClipRatio) {
  const LossSpec loss = VerlLossOf(
      R"({"clip_ratio": 0.3, "clip_ratio_low": null, "loss_mode": "cispo"})");
  EXPECT_EQ(loss.clip_low, 0.3);
  EXPECT_EQ(loss.clip_high, 0.2);
}

TEST(VerlLossTest, GspoIsASequenceRatioForEachToken) {
  const LossSpec loss =
      VerlLossOf(R"({"loss_mode": "gspo", "loss_agg_mode": "token-sum"})");
  EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(loss.level, LossLevel::kSequenceToken);
  EXPECT_EQ(loss.log_ratio_lower, -LossSpec::kNoBound);
  EXPECT_EQ(loss.log_ratio_upper, 10.0);
  EXPECT_EQ(loss.dual_clip, LossSpec::kNoBound);
  EXPECT_EQ(loss.reduction.count, BatchCount::kKeptRows);
  EXPECT_EQ(loss.reduction.row, RowCount::kKeptTokens);
}

TEST(VerlLossTest, DppoCapsADetachedRatio) {
  const LossSpec loss =
      VerlLossOf(R"({"loss_mode": "dppo_kl", "clip_ratio_c": 0.5})");
  EXPECT_EQ(loss.surrogate, Surrogate::kDppoKl);
  EXPECT_EQ(loss.ratio_cap, 0.5);
  EXPECT_TRUE(loss.log_prob_form);
  EXPECT_EQ(loss.dual_clip, LossSpec::kNoBound);
}

TEST(VerlLossTest, NullPpoKlCoefIsNotItsDefault) {
  EXPECT_EQ(VerlLossOf(R"({"loss_mode": "kl_cov"})").covariance_kl_weight, 0.1);
  const LossSpec null = VerlLossOf(
      R"({"loss_mode": "kl_cov", "ppo_kl_coef": null, "kl_cov_ratio": null})");
  EXPECT_EQ(null.covariance_kl_weight, 1.0);
  EXPECT_EQ(null.covariance_fraction, 0.0002);
}

TEST(VerlLossTest, ClipCovDrawsFromTheRequestsSeed) {
  const LossSpec loss = VerlLossOf(
      R"({"loss_mode": "clip_cov", "clip_cov_ratio": 3, "clip_cov_lb": 0.5})");
  EXPECT_EQ(loss.seed, 7u);
  EXPECT_EQ(loss.covariance_fraction, 1.0);
  EXPECT_EQ(loss.covariance_lower, 0.5);
  EXPECT_EQ(loss.covariance_upper, 5.0);
}

TEST(VerlLossTest, GeoMeanIsAMeanOverAllRows) {
  const LossSpec loss = VerlLossOf(
      R"({"loss_mode": "geo_mean", "global_batch_info": {"dp_size": 4}})");
  EXPECT_EQ(loss.reduction.count, BatchCount::kRows);
  EXPECT_EQ(loss.reduction.row, RowCount::kKeptTokens);
  EXPECT_EQ(loss.reduction.scale, 1.0);
}

TEST(VerlLossTest, AggregationsDivideByGivenCounts) {
  const auto reduction = [](const std::string& mode) {
    return VerlLossOf(R"({"loss_agg_mode": ")" + mode + R"(",
        "loss_scale_factor": 8, "global_batch_info":
        {"dp_size": 2, "batch_num_tokens": 40, "global_batch_size": 5}})")
        .reduction;
  };
  EXPECT_EQ(reduction("token-mean").scale, 2.0 / 40);
  EXPECT_EQ(reduction("token-sum").scale, 2.0);
  EXPECT_EQ(reduction("seq-mean-token-sum").scale, 2.0 / 5);
  EXPECT_EQ(reduction("seq-mean-token-sum-norm").scale, 2.0 / 5 / 8);
  EXPECT_EQ(reduction("seq-mean-token-mean").scale, 2.0 / 5);
  for (const char* mode : {"token-mean", "token-sum", "seq-mean-token-sum",
                           "seq-mean-token-sum-norm", "seq-mean-token-mean"}) {
    EXPECT_EQ(reduction(mode).count, BatchCount::kOne) << mode;
  }
  EXPECT_EQ(reduction("seq-mean-token-sum").row, RowCount::kOne);
  EXPECT_EQ(reduction("seq-mean-token-mean").row, RowCount::kKeptTokens);
}

TEST(VerlLossTest, NormIsThePaddedWidthByDefault) {
  const LossSpec loss =
      VerlLossOf(R"({"loss_agg_mode": "seq-mean-token-sum-norm"})");
  EXPECT_EQ(loss.reduction.count, BatchCount::kKeptRows);
  EXPECT_EQ(loss.reduction.scale, 1.0 / 4);
}

TEST(VerlLossTest, KlFollowsTheAggregation) {
  const LossSpec loss = VerlLossOf(
      R"({"loss_mode": "gspo", "loss_agg_mode": "token-sum",
          "use_kl_loss": true, "kl_loss_coef": 0.25})");
  EXPECT_EQ(loss.kl.estimator, KlEstimator::kK3);
  EXPECT_EQ(loss.kl.coefficient, 0.25);
  EXPECT_EQ(loss.kl.token_clamp, 20.0);
  EXPECT_EQ(loss.kl.value_clamp, 10.0);
  EXPECT_FALSE(loss.kl.straight_through);
  EXPECT_EQ(loss.kl.over, TokenSet::kKept);
  EXPECT_EQ(loss.kl.reduction.count, BatchCount::kOne);
}

TEST(VerlLossTest, EveryKlTypeHasAnEstimator) {
  const std::vector<std::pair<std::string, KlEstimator>> types = {
      {"kl", KlEstimator::kK1},         {"k1", KlEstimator::kK1},
      {"abs", KlEstimator::kAbs},       {"mse", KlEstimator::kK2},
      {"k2", KlEstimator::kK2},         {"k3", KlEstimator::kK3},
      {"low_var_kl", KlEstimator::kK3},
  };
  for (const auto& [name, estimator] : types) {
    for (const std::string suffix : {"", "+"}) {
      const LossSpec loss =
          VerlLossOf(R"({"use_kl_loss": true, "kl_loss_type": ")" + name +
                     suffix + R"("})");
      EXPECT_EQ(loss.kl.estimator, estimator) << name;
      EXPECT_EQ(loss.kl.straight_through, suffix == "+") << name;
      EXPECT_EQ(loss.kl.token_clamp == 20.0, estimator == KlEstimator::kK3);
    }
  }
}

TEST(VerlLossTest, BypassComparesWithTheRollout) {
  const Translation t = Translate(
      R"({"bypass_mode": true, "rollout_is": "token",
          "policy_loss": {"use_kl_loss": true}})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.weight.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(t.spec.loss.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(t.spec.loss.metrics_source, RatioSource::kCurrentRollout);
  EXPECT_FALSE(t.spec.loss.applies_weight);
  EXPECT_EQ(t.spec.loss.kl.over, TokenSet::kOriginal);
  EXPECT_EQ(t.spec.loss.kl.reduction.count, BatchCount::kTokens);
}

TEST(VerlLossTest, BypassReinforceAppliesWeights) {
  const Translation t = Translate(
      R"({"preset": "bypass_pg_geo_rs_seq_tis",
          "policy_loss": {"loss_mode": "bypass_mode"}})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kReinforce);
  EXPECT_TRUE(t.spec.loss.applies_weight);
  EXPECT_EQ(t.spec.num_rules, 1);
}

TEST(VerlLossTest, LossModeReinforceRejectsNothing) {
  const Translation t = Translate(
      R"({"bypass_mode": true, "rollout_is": "token",
          "rollout_rs": "token_k1", "rollout_rs_threshold": 2,
          "policy_loss": {"loss_mode": "reinforce"}})");
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kReinforce);
  EXPECT_TRUE(t.spec.loss.applies_weight);
  EXPECT_EQ(t.spec.num_rules, 0);
  EXPECT_THAT(t.warnings, ElementsAre(HasSubstr("rejects nothing")));
}

TEST(VerlLossTest, ReadsTheOriginalsTree) {
  const std::string tree = R"({
      "algorithm": {"rollout_correction": {"rollout_is": "token"}},
      "actor_rollout_ref": {"actor": {
          "_target_": "verl.workers.config.FSDPActorConfig",
          "ppo_mini_batch_size": 256, "clip_ratio_high": 0.28,
          "entropy_coeff": 0, "use_kl_loss": true,
          "policy_loss": {"_target_": "verl.workers.config.PolicyLossConfig",
                          "loss_mode": "kl_cov", "kl_cov_ratio": 0.5}}}})";
  const Translation t = Translate(tree);
  EXPECT_THAT(t.violations, IsEmpty());
  EXPECT_EQ(t.spec.loss.surrogate, Surrogate::kKlCov);
  EXPECT_EQ(t.spec.loss.covariance_fraction, 0.5);
  EXPECT_EQ(t.spec.loss.kl.estimator, KlEstimator::kK3);
}

TEST(VerlLossMetricsTest, KlOfNothingIsNotANumber) {
  LossSpec spec = VerlLossOf(R"({"use_kl_loss": true})");
  kernels::BatchSums sums{};
  sums.tokens = 3;
  MetricMap metrics;
  AddVerlLossMetrics({}, spec, sums, &metrics);
  EXPECT_TRUE(std::isnan(metrics.at("kl_loss")));
  EXPECT_EQ(metrics.at("kl_coef"), 0.001);
}

}  // namespace
}  // namespace counterweight::server
