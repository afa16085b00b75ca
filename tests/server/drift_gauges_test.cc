// Gauges of the last batch of a run.
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "server/engine/codec_publication.h"
#include "tests/server/drift_series_fixture.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;

TEST_F(DriftSeriesTest, GaugesAreTheFormulas) {
  // l = 0.2 and -0.1.
  const double u1 = std::expm1(0.2);
  const double u2 = std::expm1(-0.1);
  BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 0.1;
  sums.drift.k3 = (u1 - 0.2) + (u2 + 0.1);
  sums.drift.excess = u1 + u2;
  sums.drift.excess_squared = u1 * u1 + u2 * u2;
  sums.drift.chi2_sequence = std::expm1(0.2);
  sums.drift.ppl_ratio_excess = std::expm1(-0.05);
  Publish(sums, "r");
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_kl_nats", "r"), -0.05);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_k3_nats", "r"),
                   sums.drift.k3 / 2);
  EXPECT_NEAR(Value("counterweight_drift_chi2_token", "r"),
              (std::exp(0.4) + std::exp(-0.2)) / 2 - 1, 1e-15);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_chi2_sequence", "r"),
                   std::exp(0.2) - 1);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_ppl_ratio", "r"),
                   std::exp(-0.05));
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_kept_token_ratio", "r"), 0.5);
  EXPECT_TRUE(std::isnan(Value("counterweight_drift_weight_mean", "r")))
      << "no weight, no series";
}

TEST_F(DriftSeriesTest, EqualPoliciesHaveNoDrift) {
  BatchSums sums = TwoTokens();
  sums.weight.weight = 2;
  sums.weight.weight_squared = 2;
  sums.weight.range = {1, 1};
  Publish(sums, "r", "", "a", /*has_weight=*/true);
  EXPECT_EQ(Value("counterweight_drift_kl_nats", "r"), 0);
  EXPECT_FALSE(std::signbit(Value("counterweight_drift_kl_nats", "r")));
  EXPECT_EQ(Value("counterweight_drift_ppl_ratio", "r"), 1);
  EXPECT_EQ(Value("counterweight_drift_effective_sample_size_ratio", "r"), 1);
  EXPECT_EQ(Value("counterweight_drift_weight_mean", "r"), 1);
  EXPECT_EQ(Value("counterweight_drift_weight_max", "r"), 1);
}

TEST_F(DriftSeriesTest, WeightsAreShownAsTheNativeMetricsDo) {
  // Weights 0.5 and 2, before normalization divides them by 1.25; afterwards
  // their mean is always 1.
  BatchSums sums = TwoTokens();
  sums.weight.weight = 2.5;
  sums.weight.weight_squared = 4.25;
  sums.weight.excess = 0.5;
  sums.weight.excess_squared = 1.25;
  sums.weight.kept_weight = 0.5;
  sums.weight.kept_weight_squared = 0.25;
  sums.weight.range = {0.5, 2};
  sums.weight.tokens_high = 1;
  sums.weight.tokens_outside = 2;
  sums.weight.normalizer = 1.25;
  Publish(sums, "r", "", "a", /*has_weight=*/true);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_mean", "r"), 1.25);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_max", "r"), 2);
  EXPECT_DOUBLE_EQ(
      Value("counterweight_drift_effective_sample_size_ratio", "r"),
      1.25 * 1.25 / 2.125);
  EXPECT_DOUBLE_EQ(
      Value("counterweight_drift_kept_effective_sample_size_ratio", "r"), 0.5);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_high_ratio", "r"), 0.5);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_low_ratio", "r"), 0.5);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_outside_ratio", "r"), 1);
}

TEST_F(DriftSeriesTest, LossGaugesAreTheNativeMetrics) {
  BatchSums sums = TwoTokens();
  sums.loss.total = 1.5;
  sums.loss.policy = 1.25;
  sums.loss.kl_penalty = 2.5;
  sums.loss.kl = 6;
  sums.loss.kl_tokens = 4;
  sums.loss.log_ratio_kept = -0.25;
  sums.loss.clipped = 1;
  sums.loss.high = 2;
  sums.loss.low = 1;
  sums.loss.gradient_squared = 9;
  sums.loss.slope = 8;
  sums.loss.slope_clipped = 2;
  sums.loss.slope_rejected = 1;
  kernels::CorrectionSpec spec;
  Publish(sums, "r", spec, std::nullopt);
  EXPECT_TRUE(std::isnan(Value("counterweight_loss", "r")))
      << "no loss, no series";
  spec.loss.surrogate = kernels::Surrogate::kPpoClip;
  Publish(sums, "r", spec, std::nullopt);
  EXPECT_EQ(Value("counterweight_loss", "r"), 1.5);
  EXPECT_EQ(Value("counterweight_loss_policy", "r"), 1.25);
  EXPECT_EQ(Value("counterweight_loss_ppo_kl_nats", "r"), 0.25);
  EXPECT_EQ(Value("counterweight_loss_clip_ratio", "r"), 0.5);
  EXPECT_EQ(Value("counterweight_loss_clip_high_ratio", "r"), 1);
  EXPECT_EQ(Value("counterweight_loss_clip_low_ratio", "r"), 0.5);
  EXPECT_EQ(Value("counterweight_loss_gradient_norm", "r"), 3);
  EXPECT_EQ(Value("counterweight_loss_gradient_clipped_ratio", "r"), 0.25);
  EXPECT_EQ(Value("counterweight_loss_gradient_rejected_ratio", "r"), 0.125);
  EXPECT_TRUE(std::isnan(Value("counterweight_loss_kl_penalty", "r")))
      << "no penalty, no series";
  spec.loss.kl.estimator = kernels::KlEstimator::kK3;
  Publish(sums, "r", spec, std::nullopt);
  EXPECT_EQ(Value("counterweight_loss_kl_penalty", "r"), 2.5);
  EXPECT_EQ(Value("counterweight_loss_kl_nats", "r"), 1.5);
}

TEST_F(DriftSeriesTest, ThePolicyVersionIsTheLastOneTold) {
  const kernels::CorrectionSpec spec;
  Publish(TwoTokens(), "r", spec, 7);
  Publish(TwoTokens(), "r", spec, std::nullopt);
  EXPECT_EQ(Value("counterweight_drift_policy_version", "r"), 7);
  Publish(TwoTokens(), "r", spec, 8);
  EXPECT_EQ(Value("counterweight_drift_policy_version", "r"), 8);
  Publish(TwoTokens(), "s", spec, std::nullopt);
  EXPECT_TRUE(std::isnan(Value("counterweight_drift_policy_version", "s")));
}

TEST_F(DriftSeriesTest, ABatchWithoutTokensMovesNoGauge) {
  BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 1;
  Publish(sums, "r");
  BatchSums empty{};
  empty.num_sequences = 4;
  Publish(empty, "r");
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_kl_nats", "r"), -0.5);
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 2);
  EXPECT_EQ(Value("counterweight_drift_sequences_total", "r"), 5);
}

TEST_F(DriftSeriesTest, StalenessIsBoundedByRunAndShowsWhatWasMeasured) {
  BatchSums sums = TwoTokens();
  Publish(sums, "a");
  EXPECT_TRUE(
      std::isnan(Value("counterweight_drift_staleness_tokens_total", "a")));
  sums.staleness.measured = 1;
  sums.staleness.buckets[5] = {.tokens = 2, .log_ratio = -3.0, .k3 = 1.0};
  sums.staleness.unknown_tokens = 1;
  sums.staleness.histogram[9] = 2;
  Publish(sums, "a");
  Publish(sums, "a");
  std::map<std::string, double> tokens;
  std::map<std::string, double> kl;
  for (const auto& family : registry_.Collect()) {
    for (const auto& metric : family.metric) {
      std::string staleness;
      for (const auto& label : metric.label) {
        if (label.name == "staleness") staleness = label.value;
      }
      if (family.name == "counterweight_drift_staleness_tokens_total") {
        tokens[staleness] = metric.counter.value;
      }
      if (family.name == "counterweight_drift_staleness_kl_nats") {
        kl[staleness] = metric.gauge.value;
      }
    }
  }
  EXPECT_EQ(tokens, (std::map<std::string, double>{{"0", 0},
                                                   {"1", 0},
                                                   {"2", 0},
                                                   {"3-4", 0},
                                                   {"5-8", 0},
                                                   {"9+", 4},
                                                   {"unknown", 2}}));
  EXPECT_EQ(kl, (std::map<std::string, double>{{"9+", 1.5}}));
}

TEST_F(DriftSeriesTest, GaugesOfARunThatLeftLeave) {
  BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 1;
  sums.drift.histogram[9] = 2;
  sums.staleness.measured = 1;
  sums.staleness.buckets[0] = {.tokens = 2, .log_ratio = 1.0, .k3 = 1.0};
  const kernels::CorrectionSpec spec;
  Publish(sums, "left", spec, 7);
  Publish(sums, "stays", spec, 7);
  const size_t all = NumRunSeries();
  now_ += std::chrono::minutes(10);
  series_.HideOldGauges();
  EXPECT_EQ(NumRunSeries(), all);
  Publish(TwoTokens(), "stays", spec, 8);
  now_ += std::chrono::seconds(1);
  series_.HideOldGauges();
  for (const char* gauge :
       {"counterweight_drift_kl_nats", "counterweight_drift_k3_nats",
        "counterweight_drift_kept_token_ratio",
        "counterweight_drift_policy_version",
        "counterweight_drift_staleness_kl_nats",
        "counterweight_drift_staleness_k3_nats"}) {
    EXPECT_TRUE(std::isnan(Value(gauge, "left"))) << gauge;
  }
  EXPECT_EQ(Value("counterweight_drift_policy_version", "stays"), 8);
  // A gauge of something that its last batches lacked has left, too.
  EXPECT_TRUE(
      std::isnan(Value("counterweight_drift_staleness_kl_nats", "stays")));
  EXPECT_EQ(Value("counterweight_drift_tokens_total", "left"), 2);
  EXPECT_EQ(Value("counterweight_drift_k3_sum_nats_total", "left"), 0);
  EXPECT_EQ(Total("counterweight_drift_runs").gauge.value, 2);
  Publish(sums, "left", spec, 9);
  EXPECT_EQ(Value("counterweight_drift_policy_version", "left"), 9);
  EXPECT_EQ(Value("counterweight_drift_kl_nats", "left"), -0.5);
  EXPECT_EQ(Value("counterweight_drift_tokens_total", "left"), 4);
}

}  // namespace
}  // namespace counterweight::server
