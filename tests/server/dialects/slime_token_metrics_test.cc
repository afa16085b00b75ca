// slime's and miles' metrics of tokens, of batches that no golden has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/corrected_tokens.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/slime.h"
#include "server/engine/names.h"
#include "tests/server/dialects/blocks.h"
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

constexpr double kTolerance = 1e-9;

// Old log-probs of 0 and advantages of -1; `masked` is the last positions'
// number.
Row RowOfPolicy(std::vector<float> current, size_t masked = 0) {
  const size_t size = current.size();
  Row row;
  row.mask.assign(size, 1);
  std::fill(row.mask.end() - static_cast<std::ptrdiff_t>(masked),
            row.mask.end(), uint8_t{0});
  for (std::vector<float>& values : row.values) values.assign(size, 0.0f);
  row[InputRole::kAdvantages].assign(size, -1.0f);
  row[InputRole::kCurrent] = std::move(current);
  return row;
}

MetricMap Measure(std::string_view system, const std::string& json,
                  const std::vector<Row>& rows) {
  RequestFacts facts = AllTensors();
  facts.num_sequences = static_cast<int64_t>(rows.size());
  const Translation translation =
      FindDialect(system)->translate(Block(json), false, facts);
  EXPECT_THAT(Fields(translation), IsEmpty()) << json;
  kernels::OwnedBatch batch(rows);
  if (!translation.row_divisors.empty()) {
    batch.SetRowDivisors(translation.row_divisors);
  }
  const kernels::Batch view = batch.view();
  const kernels::ReferenceResult result =
      kernels::Reference(translation.spec, view);
  const std::vector<float> weights(result.weights.begin(),
                                   result.weights.end());
  MetricMap metrics;
  translation.token_metrics(
      CorrectedTokens(view, translation.spec, result.keep_mask.data(),
                      weights.data()),
      result.sums, &metrics);
  return metrics;
}

std::set<std::string> NamesOf(const MetricMap& metrics) {
  std::set<std::string> names;
  for (const auto& [name, value] : metrics) names.insert(name);
  return names;
}

std::vector<std::string> Blocks(std::string_view mis) {
  const std::string path =
      Concat(R"("use_tis": true, "custom_tis_function_path": ")", mis, R"(")");
  return {
      "{}",
      R"({"use_tis": true})",
      R"({"use_opsm": true, "advantage_estimator": "gspo"})",
      R"({"use_rollout_logprobs": true, "calculate_per_token_loss": true})",
      Concat("{", path, "}"),
      Concat("{", path, R"(, "tis_mode": "clip", "use_rs": true})"),
      Concat("{", path, R"(, "tis_mode": "mask", "tis_level": "sequence",
                          "use_rs": true, "rs_veto_threshold": 0.5,
                          "tis_batch_normalize": true})"),
  };
}

// A prepared call learns the names from one batch.
TEST(SlimeTokenMetricsTest, NamesAreThoseOfEveryBatch) {
  const std::pair<const char*, const char*> systems[] = {
      {"slime",
       "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"},
      {"miles",
       "examples.infra_features.train_infer_mismatch_helper.mis."
       "compute_mis_weights_with_cp"}};
  for (const auto& [system, mis] : systems) {
    for (const std::string& json : Blocks(mis)) {
      const auto names =
          NamesOf(Measure(system, json, {RowOfPolicy({0.0f, 0.5f})}));
      EXPECT_THAT(names, Not(IsEmpty())) << system << json;
      EXPECT_EQ(names, NamesOf(Measure(system, json,
                                       {RowOfPolicy({0.0f}, 1),
                                        RowOfPolicy({-90.0f, 90.0f, 3.0f})})))
          << system << json;
      EXPECT_EQ(names, NamesOf(Measure(system, json, {RowOfPolicy({0.0f}, 1)})))
          << system << json;
    }
  }
}

// Two rows of one rollout of 8 tokens; the other half is in another batch.
TEST(SlimeTokenMetricsTest, SharedDivisorsAreThoseOfTheRollout) {
  const MetricMap metrics = Measure(
      "slime", R"({"rollout_mask_sums": [8, 8], "step_global_batch_size": 1})",
      {RowOfPolicy({-1.0f, -2.0f, -9.0f}, 1), RowOfPolicy({-4.0f, 3.0f})});
  EXPECT_THAT(metrics.at("ppo_kl"), DoubleNear(4.0 / 8.0, kTolerance));
  EXPECT_THAT(metrics.at("train_rollout_logprob_abs_diff"),
              DoubleNear(0.0, kTolerance));
  // Advantages below 0: the ratios below 0.8.
  EXPECT_THAT(metrics.at("pg_clipfrac"), DoubleNear(3.0 / 8.0, kTolerance));
}

// The effective sample size is of a row's own tokens all the same.
TEST(SlimeTokenMetricsTest, MilesBoundsItsRatioButNotItsMean) {
  const Row far = RowOfPolicy({25.0f, 0.0f});
  const MetricMap metrics =
      Measure("miles",
              R"({"use_tis": true, "rollout_mask_sums": [4],
                  "step_global_batch_size": 1})",
              {far});
  EXPECT_THAT(metrics.at("ois"),
              DoubleNear((std::exp(25.0) + 1.0) / 4.0, 1e-3));
  const double largest = std::exp(20.0);
  const double size =
      (largest + 1.0) * (largest + 1.0) / (2.0 * (largest * largest + 1.0));
  EXPECT_THAT(metrics.at("ess_ratio"), DoubleNear(size, kTolerance));
}

TEST(SlimeTokenMetricsTest, OpsmCountsNoMaskedPositions) {
  const MetricMap metrics =
      Measure("slime", R"({"use_opsm": true, "opsm_delta": 0.5})",
              {RowOfPolicy({-1.0f, -1.0f, -1.0f}, 1), RowOfPolicy({-0.5f})});
  EXPECT_THAT(metrics.at("opsm_clipfrac"), DoubleNear(0.5, kTolerance));
}

}  // namespace
}  // namespace counterweight::server
