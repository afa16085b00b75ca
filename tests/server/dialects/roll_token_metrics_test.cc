// The goldens cover the numbers of ROLL's metrics of tokens; these tests cover
// the rest.
#include "server/engine/dialects/roll_token_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "server/engine/dialects/roll.h"
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
using testing::Not;

MetricMap RollTokenMetrics(const std::string& json,
                           const std::vector<Row>& rows,
                           RequestFacts facts = AllTensors()) {
  facts.num_sequences = static_cast<int64_t>(rows.size());
  const Translation t = TranslateRoll(Block(json), false, facts);
  EXPECT_THAT(Fields(t), IsEmpty()) << json;
  const kernels::OwnedBatch batch(rows);
  return TokenMetricsOf(t, batch.view(),
                        kernels::Reference(t.spec, batch.view()));
}

// A row with that advantage everywhere.
Row RowWith(const std::vector<float>& old, const std::vector<float>& current,
            const std::vector<uint8_t>& mask, float advantage) {
  const std::vector<float> rollout(mask.size(), -2.0f);
  Row row;
  row.mask = mask;
  row[InputRole::kRollout] = rollout;
  row[InputRole::kRef] = rollout;
  row[InputRole::kOld] = old;
  row[InputRole::kCurrent] = current;
  row[InputRole::kAdvantages] = std::vector<float>(mask.size(), advantage);
  return row;
}

// A masked position ends a segment, and its numbers are not read. The average
// leaves rows without tokens out.
TEST(RollTokenMetricsTest, ASegmentIsARunOfTokens) {
  RequestFacts facts = AllTensors();
  facts.wants_loss = false;
  const std::vector<float> old = {-1.5f, -0.5f, -0.25f, -3.0f};
  const MetricMap metrics =
      RollTokenMetrics("{}",
                       {RowWith(old, old, {1, 1, 0, 1}, 1.0f),
                        RowWith(old, old, {0, 0, 0, 0}, 1.0f)},
                       facts);
  const auto near = [&](const std::string& name, double expected) {
    EXPECT_THAT(metrics.at(Concat("actor/train_infer_", name, "_mean@sum")),
                DoubleNear(expected, 1e-6))
        << name;
  };
  const double e = std::exp(1.0);
  near("ratio_token", (std::exp(0.5) + std::exp(1.5) + 1.0 / e) / 3.0);
  near("ratio_geometric", std::exp(1.0 / 3.0));
  near("ratio_sequence", e);
  near("ratio_segment", (2.0 * e + 1.0 / e) / 3.0);
  const double difference =
      std::exp(-1.5) + std::exp(-0.5) + std::exp(-3.0) - 3.0 * std::exp(-2.0);
  near("diff_token", difference / 3.0);
  near("diff_geometric", difference / 3.0);
  near("diff_sequence", difference);
  near("diff_segment", difference / 3.0);
}

// Masked positions at the end of rows may be left out of a packed batch, which
// AllTensors() makes 4 wide.
TEST(RollTokenMetricsTest, PackedRowsHaveThePaddedBatchsMetrics) {
  const std::vector<float> zeros(4, 0.0f);
  const std::vector<Row> padded = {
      RowWith({-2.5f, -1.5f, 0, 0}, {-2.0f, -2.0f, 0, 0}, {1, 1, 0, 0}, 1.0f),
      RowWith({-1.0f, -2.0f, -3.5f, 0}, {-2.0f, -2.0f, -3.0f, 0}, {1, 0, 1, 0},
              -2.0f),
      RowWith(zeros, zeros, {0, 0, 0, 0}, 0.0f)};
  const std::vector<Row> packed = {
      RowWith({-2.5f, -1.5f}, {-2.0f, -2.0f}, {1, 1}, 1.0f),
      RowWith({-1.0f, -2.0f, -3.5f}, {-2.0f, -2.0f, -3.0f}, {1, 0, 1}, -2.0f),
      RowWith({}, {}, {}, 0.0f)};
  const std::string filter = R"("train_infer_correction": {"filters": [
      {"enabled": true, "ratio_low": 0.1, "ratio_high": 1.2}]})";
  for (const std::string fields :
       {R"("importance_sampling": "token")", R"("importance_sampling": "seq")",
        R"("pg_variant": "vanilla")", R"("pg_variant": "ppo")",
        R"("pg_variant": "cispo")", R"("pg_variant": "kimi15")",
        R"("pg_variant": "tis", "tis_upper_bound": 0.7)"}) {
    for (const char* mode : {"seq-mean-token-mean", "seq-mean-token-sum",
                             "seq-mean-token-sum-norm", "token-mean"}) {
      const std::string json = Concat("{", fields, R"(, "loss_agg_mode": ")",
                                      mode, R"(", )", filter, "}");
      const MetricMap expected = RollTokenMetrics(json, padded);
      EXPECT_THAT(expected, Not(IsEmpty()));
      EXPECT_EQ(RollTokenMetrics(json, packed), expected) << json;
    }
  }
}

// torch.std of one number.
TEST(RollTokenMetricsTest, OnePositionHasNoDeviation) {
  RequestFacts facts = AllTensors();
  facts.padded_length = 1;
  const MetricMap metrics =
      RollTokenMetrics(R"({"pg_variant": "kimi15"})",
                       {RowWith({-2.0f}, {-1.0f}, {1}, 3.0f)}, facts);
  EXPECT_TRUE(std::isnan(metrics.at("actor/kimi15_kimi15_log_ratio_std")));
  EXPECT_THAT(metrics.at("actor/kimi15_kimi15_policy_grad_magnitude"),
              DoubleNear(3.0, 1e-6));
}

}  // namespace
}  // namespace counterweight::server
