// The goldens cover the numbers; these tests cover the rest.
#include "server/engine/dialects/verl_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/batch_builder.h"
#include "tests/testing/reference.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using testing::DoubleNear;

kernels::CorrectionSpec SequenceTis(double upper) {
  kernels::CorrectionSpec spec;
  spec.weight.level = kernels::Level::kSequence;
  spec.weight.bound = kernels::Bound::kTruncate;
  spec.weight.aggregate_clamp = kernels::kSafetyClamp;
  spec.weight.upper = upper;
  spec.peer_sums = true;
  return spec;
}

kernels::BatchSums SumsOf(const kernels::CorrectionSpec& spec,
                          const std::vector<kernels::Row>& rows) {
  return kernels::Reference(spec, kernels::OwnedBatch(rows).view()).sums;
}

// Probabilities of the trainer and of the engine.
kernels::Row RowOfProbabilities(const std::vector<double>& old,
                                const std::vector<double>& rollout) {
  kernels::Row row = kernels::RowOf(std::vector<float>(old.size()));
  for (size_t t = 0; t < old.size(); ++t) {
    row[InputRole::kOld][t] = static_cast<float>(std::log(old[t]));
    row[InputRole::kRollout][t] = static_cast<float>(std::log(rollout[t]));
  }
  return row;
}

TEST(VerlMetricsTest, ComparesProbabilities) {
  MetricMap metrics;
  AddVerlProbabilityMetrics(
      SumsOf(SequenceTis(2.0),
             {RowOfProbabilities({0.5, 0.2, 0.9}, {0.4, 0.3, 0.9})}),
      &metrics);
  EXPECT_EQ(metrics.size(), 5u);
  EXPECT_EQ(metrics["training/rollout_probs_diff_valid"], 1.0);
  EXPECT_THAT(metrics["training/rollout_probs_diff_max"],
              DoubleNear(0.1, 1e-7));
  EXPECT_THAT(metrics["training/rollout_probs_diff_mean"],
              DoubleNear(0.2 / 3, 1e-7));
  EXPECT_THAT(metrics["training/rollout_probs_diff_std"],
              DoubleNear(0.0577350269, 1e-7));
  // numpy.corrcoef of the same numbers.
  EXPECT_THAT(metrics["training/rollout_actor_probs_pearson_corr"],
              DoubleNear(0.9596252175, 1e-6));
}

TEST(VerlMetricsTest, OneTokenHasNoVariance) {
  MetricMap metrics;
  AddVerlProbabilityMetrics(
      SumsOf(SequenceTis(2.0), {RowOfProbabilities({0.5}, {0.4})}), &metrics);
  EXPECT_TRUE(std::isnan(metrics["training/rollout_probs_diff_std"]));
  EXPECT_TRUE(std::isnan(metrics["training/rollout_actor_probs_pearson_corr"]));
}

// An empty row counts as log ratio 0, mean weight 0 and perplexity 1.
TEST(VerlMetricsTest, EmptyRowsCount) {
  kernels::Row empty = kernels::RowOf({3.0f, 3.0f});
  empty.mask = {0, 0};
  const kernels::CorrectionSpec spec = SequenceTis(0.5);
  const kernels::BatchSums sums =
      SumsOf(spec, {kernels::RowOf({-2.0f, -1.0f}), empty});
  MetricMap metrics;
  AddVerlWeightMetrics(spec.weight, sums, &metrics);
  AddVerlDriftMetrics(sums, &metrics);
  const double weight = std::exp(-3.0);
  const auto at = [&](const std::string& name) {
    return metrics.at("rollout_corr/" + name);
  };
  EXPECT_THAT(at("rollout_is_mean"), DoubleNear(weight, 1e-9));
  EXPECT_EQ(at("rollout_is_max"), 1.0);
  EXPECT_THAT(at("rollout_is_min"), DoubleNear(weight, 1e-9));
  // log 0.5 < 0 < log 2.
  EXPECT_EQ(at("rollout_is_ratio_fraction_high"), 0.5);
  EXPECT_EQ(at("rollout_is_ratio_fraction_low"), 1.0);
  EXPECT_THAT(at("rollout_is_seq_mean"), DoubleNear(weight / 2, 1e-9));
  EXPECT_THAT(at("rollout_is_seq_std"),
              DoubleNear(weight / std::sqrt(2.0), 1e-9));
  EXPECT_EQ(at("rollout_is_seq_min"), 0.0);
  EXPECT_EQ(at("rollout_is_seq_max_deviation"), 1.0);
  EXPECT_EQ(at("rollout_is_seq_fraction_low"), 1.0);
  EXPECT_THAT(at("log_ppl_diff"), DoubleNear(0.75, 1e-9));
  EXPECT_EQ(at("log_ppl_diff_min"), 0.0);
  EXPECT_THAT(at("training_ppl"), DoubleNear((std::exp(1.5) + 1) / 2, 1e-9));
  EXPECT_EQ(at("rollout_ppl"), 1.0);
}

TEST(VerlMetricsTest, EqualPoliciesAreAtRest) {
  const kernels::CorrectionSpec spec = SequenceTis(2.0);
  const kernels::BatchSums sums =
      SumsOf(spec, {kernels::RowOf({0.0f, 0.0f}), kernels::RowOf({0.0f})});
  MetricMap metrics;
  AddVerlWeightMetrics(spec.weight, sums, &metrics);
  AddVerlDriftMetrics(sums, &metrics);
  EXPECT_EQ(metrics["rollout_corr/rollout_is_mean"], 1.0);
  EXPECT_THAT(metrics["rollout_corr/rollout_is_eff_sample_size"],
              DoubleNear(1.0, 1e-7));
  for (const char* zero : {"kl", "k3_kl", "chi2_token", "chi2_seq",
                           "rollout_is_seq_std", "log_ppl_abs_diff"}) {
    EXPECT_EQ(metrics[std::string("rollout_corr/") + zero], 0.0) << zero;
  }
}

}  // namespace
}  // namespace counterweight::server
