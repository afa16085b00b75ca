// The goldens cover the numbers; these tests cover the rest.
#include "server/engine/dialects/skyrl_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "server/engine/dialects/skyrl.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/reference.h"

namespace counterweight::server {
namespace {

using testing::DoubleNear;
using testing::IsEmpty;

// A row of 2 tokens and an empty one in a batch that was 4 wide.
MetricMap CorrectionMetrics(const std::string& correction) {
  RequestFacts facts = AllTensors();
  facts.wants_loss = false;
  const Translation t = TranslateSkyrl(
      Block(R"({"off_policy_correction": )" + correction + "}"), false, facts);
  kernels::Row empty = kernels::RowOf({3.0f});
  empty.mask = {0};
  const std::vector<float> logs = {std::log(2.0f), std::log(4.0f)};
  const kernels::BatchSums sums =
      kernels::Reference(
          t.spec, kernels::OwnedBatch({kernels::RowOf(logs), empty}).view())
          .sums;
  MetricMap metrics;
  AddSkyrlCorrectionMetrics(t.spec, 4, sums, &metrics);
  AddSkyrlDriftMetrics(t.spec, sums, &metrics);
  return metrics;
}

TEST(SkyrlMetricsTest, RatiosAreOfThePaddedBatch) {
  const MetricMap metrics = CorrectionMetrics(R"({"tis_ratio_type": "token"})");
  EXPECT_THAT(metrics.at("is_ratio_mean"), DoubleNear(3.0, 1e-6));
  // torch.tensor([2., 4, 0, 0, 0, 0, 0, 0]).std()
  EXPECT_THAT(metrics.at("is_ratio_std"), DoubleNear(1.4880476, 1e-6));
  EXPECT_THAT(metrics.at("is_ratio_max"), DoubleNear(4.0, 1e-6));
  EXPECT_EQ(metrics.at("is_ratio_min"), 0.0);
  const std::string diff = "policy/rollout_train_logprobs_abs_diff_";
  EXPECT_THAT(metrics.at(diff + "mean"), DoubleNear(1.0397208, 1e-6));
  EXPECT_THAT(metrics.at(diff + "max"), DoubleNear(1.3862944, 1e-6));
  EXPECT_THAT(metrics.at(diff + "std"), DoubleNear(0.4901291, 1e-6));
}

// Empty rows have a ratio of 1.
TEST(SkyrlMetricsTest, EmptyRowsCount) {
  const MetricMap metrics = CorrectionMetrics(
      R"({"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 0.9,
          "sequence_mask_metric": "geometric", "geo_mask_low": 1.5,
          "geo_mask_high": 3})");
  EXPECT_EQ(metrics.at("tis_seq_clip_high_ratio"), 1.0);
  EXPECT_EQ(metrics.at("geo_sequence_mask_masked_ratio"), 0.5);
  EXPECT_EQ(metrics.at("geo_sequence_mask_under_low_ratio"), 0.5);
  EXPECT_EQ(metrics.at("geo_sequence_mask_over_high_ratio"), 0.0);
}

TEST(SkyrlMetricsTest, NothingIsReportedOfWhatWasNotAsked) {
  kernels::BatchSums sums{};
  MetricMap metrics;
  AddSkyrlCorrectionMetrics({}, 4, sums, &metrics);
  AddSkyrlLossMetrics({}, true, sums, &metrics);
  AddSkyrlDriftMetrics({}, sums, &metrics);
  EXPECT_THAT(metrics, IsEmpty());
}

}  // namespace
}  // namespace counterweight::server
