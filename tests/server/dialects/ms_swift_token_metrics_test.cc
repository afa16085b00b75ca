// The goldens cover the numbers of ms-swift's metrics of tokens; these tests
// cover the rest.
#include "server/engine/dialects/ms_swift_token_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/engine/dialects/ms_swift.h"
#include "server/engine/names.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/token_metrics.h"
#include "tests/server/dialects/translations.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/reference.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::Row;
using testing::DoubleNear;
using testing::IsEmpty;

// One position with old log-probs of -2, and rollout's of -2.5.
Row OnePosition(float current, float advantage, bool counts) {
  Row row;
  row.mask = {counts ? uint8_t{1} : uint8_t{0}};
  row[InputRole::kRollout] = {-2.5f};
  row[InputRole::kOld] = {-2.0f};
  row[InputRole::kRef] = {-2.0f};
  row[InputRole::kCurrent] = {current};
  row[InputRole::kAdvantages] = {advantage};
  return row;
}

MetricMap MsSwiftTokenMetrics(const std::string& json,
                              const std::vector<Row>& rows, int64_t width) {
  RequestFacts facts = AllTensors();
  facts.padded_length = width;
  facts.num_sequences = static_cast<int64_t>(rows.size());
  const Translation t = TranslateMsSwift(Block(json), false, facts);
  EXPECT_THAT(Fields(t), IsEmpty()) << json;
  if (!t.token_metrics) return {};
  const kernels::OwnedBatch batch(rows);
  return TokenMetricsOf(t, batch.view(),
                        kernels::Reference(t.spec, batch.view()));
}

// Its means are over rows; a masked one has the ratio of its numbers, unless
// ratios are of sequences.
TEST(MsSwiftTokenMetricsTest, ABatchOfWidthOneCountsMaskedPositions) {
  const std::vector<Row> rows = {
      OnePosition(-1.0f, 1.0f, true), OnePosition(-1.0f, 1.0f, false),
      OnePosition(-3.0f, -1.0f, false), OnePosition(-1.0f, -1.0f, true)};
  const auto of = [&](const std::string& fields) {
    return MsSwiftTokenMetrics(Concat(R"({"beta": 0, )", fields, "}"), rows, 1);
  };
  const MetricMap token = of(R"("loss_type": "grpo")");
  EXPECT_EQ(token.at("clip_ratio/high_mean"), 0.5);
  EXPECT_EQ(token.at("clip_ratio/low_mean"), 0.25);
  EXPECT_EQ(token.at("clip_ratio/region_mean"), 0.75);
  EXPECT_FALSE(token.contains("kl"));
  const MetricMap row = of(R"("importance_sampling_level": "sequence")");
  EXPECT_EQ(row.at("clip_ratio/high_max"), 0.25);
  EXPECT_EQ(row.at("clip_ratio/low_min"), 0.0);
  // A capped ratio is not beyond the upper bound.
  EXPECT_EQ(of(R"("delta": 1.1)").at("clip_ratio/high_mean"), 0.0);
  EXPECT_EQ(
      of(R"("loss_type": "cispo", "epsilon_high": 2)").at("cispo_clip_ratio"),
      0.5);
  EXPECT_THAT(of(R"("loss_type": "sapo")"), IsEmpty());
  EXPECT_THAT(
      MsSwiftTokenMetrics(R"({"beta": 0, "backend": "megatron"})", rows, 1),
      IsEmpty());
  // (3 / e + e - 2) / 4.
  const MetricMap kl = MsSwiftTokenMetrics(
      R"({"rollout_importance_sampling_mode": "token_mask"})", rows, 1);
  EXPECT_THAT(kl.at("kl"), DoubleNear(0.4554800, 1e-6));
}

// The reciprocal of such a threshold is above it, and bounds no weight: those
// of 0 and 0.22 count as 0.5 both.
TEST(MsSwiftTokenMetricsTest, AThresholdBelowOneLeavesEqualWeights) {
  std::vector<Row> rows = {OnePosition(-1.0f, 1.0f, true),
                           OnePosition(-2.0f, 1.0f, true)};
  rows[1][InputRole::kOld] = {-4.0f};
  const MetricMap metrics = MsSwiftTokenMetrics(
      R"({"rollout_importance_sampling_mode": "token_mask",
          "rollout_importance_sampling_threshold": 0.5})",
      rows, 4);
  EXPECT_THAT(metrics.at("rollout_correction/ess"), DoubleNear(1.0, 1e-6));
  // (e + e^-3) / 2 - 1: of squared ratios before the bound.
  EXPECT_THAT(metrics.at("rollout_correction/chi2_seq"),
              DoubleNear(0.3840344, 1e-6));
}

}  // namespace
}  // namespace counterweight::server
