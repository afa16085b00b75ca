// Sums over a run's newest eight steps.
#include "server/observe/recent_steps.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "prometheus/registry.h"
#include "server/engine/codec_publication.h"

namespace counterweight::server {
namespace {

// `tokens` tokens of one log ratio's k3 and one weight.
PublishedBatch BatchOfTokens(int64_t tokens, double k3, double weight,
                             bool has_weight = true) {
  const auto n = static_cast<double>(tokens);
  kernels::BatchSums sums{};
  sums.num_sequences = 1;
  sums.nonempty_sequences = 1;
  sums.tokens = tokens;
  sums.drift.k3 = n * k3;
  sums.drift.histogram[kernels::kNumHistogramEdges] = tokens;  // far apart
  sums.weight.weight = n * weight;
  sums.weight.weight_squared = n * weight * weight;
  sums.weight.normalizer = 1;
  kernels::CorrectionSpec spec;
  if (has_weight) spec.weight.level = kernels::Level::kToken;
  return Published(spec, {}, sums);
}

class RecentStepsTest : public testing::Test {
 protected:
  void Add(std::optional<int64_t> step, const PublishedBatch& batch) {
    recent_.Add(step, batch, now_);
  }

  // NaN if it does not show.
  double Value(const std::string& name) {
    for (const auto& family : registry_.Collect()) {
      if (family.name == "counterweight_drift_eight_steps_" + name &&
          !family.metric.empty()) {
        return family.metric.front().gauge.value;
      }
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

  prometheus::Registry registry_;
  DriftMetrics metrics_{&registry_};
  RecentSteps recent_{&metrics_, {{"run", "r"}}};
  TimedGauge::Time now_ = TimedGauge::Time() + std::chrono::hours(1);
};

TEST_F(RecentStepsTest, NothingShowsBeforeTheEighthStep) {
  for (int64_t step = 0; step < 7; ++step) {
    Add(step, BatchOfTokens(10, 20.0, 2.0));
    EXPECT_TRUE(std::isnan(Value("tokens")));
  }
  Add(7, BatchOfTokens(10, 20.0, 2.0));
  EXPECT_EQ(Value("tokens"), 80);
  EXPECT_EQ(Value("k3_sum_nats"), 1600);
  EXPECT_EQ(Value("weighted_tokens"), 80);
  EXPECT_EQ(Value("weight_sum"), 160);
  EXPECT_EQ(Value("weight_squared_sum"), 320);
}

TEST_F(RecentStepsTest, BatchesOfOneStepAreOneAndTheOldestStepLeaves) {
  for (int64_t step = 0; step < 8; ++step) {
    Add(step, BatchOfTokens(1, 1.0, 1.0));
    Add(step, BatchOfTokens(step == 0 ? 100 : 1, 1.0, 1.0));
  }
  EXPECT_EQ(Value("tokens"), 115);
  // A late part of a step that is there.
  Add(3, BatchOfTokens(2, 1.0, 1.0));
  EXPECT_EQ(Value("tokens"), 117);
  // Step 0 leaves with its 101 tokens.
  Add(8, BatchOfTokens(5, 1.0, 1.0));
  EXPECT_EQ(Value("tokens"), 21);
}

TEST_F(RecentStepsTest, StepsBeforeTheEightChangeNothing) {
  for (int64_t step = 10; step < 18; ++step) {
    Add(step, BatchOfTokens(1, 1.0, 1.0));
  }
  now_ += std::chrono::hours(1);
  for (int i = 0; i < RunSteps::kMostLate - 1; ++i) {
    Add(9, BatchOfTokens(100, 1.0, 1.0));
  }
  EXPECT_EQ(Value("tokens"), 8);
  // A part of a held step is between them, so these were late parts.
  now_ -= std::chrono::hours(1);
  Add(17, BatchOfTokens(1, 1.0, 1.0));
  now_ += std::chrono::hours(1);
  Add(9, BatchOfTokens(100, 1.0, 1.0));
  EXPECT_EQ(Value("tokens"), 9);
  recent_.HideGaugesBefore(now_);
  EXPECT_TRUE(std::isnan(Value("tokens"))) << "late parts are no sign of life";
}

TEST_F(RecentStepsTest, ARunThatGoesBackBeginsAnew) {
  for (int64_t step = 10; step < 18; ++step) {
    Add(step, BatchOfTokens(1, 1.0, 1.0));
  }
  for (int64_t step = 2; step < 9; ++step) {
    Add(step, BatchOfTokens(3, 1.0, 1.0));
  }
  EXPECT_EQ(Value("tokens"), 8);
  // The eighth in a row is the first of the new steps.
  for (int64_t step = 9; step < 16; ++step) {
    Add(step, BatchOfTokens(3, 1.0, 1.0));
    EXPECT_TRUE(std::isnan(Value("tokens")));
  }
  Add(16, BatchOfTokens(3, 1.0, 1.0));
  EXPECT_EQ(Value("tokens"), 24);
}

TEST_F(RecentStepsTest, ABatchWithoutAStepIsOneAndAnEmptyOneIsNone) {
  for (int i = 0; i < 20; ++i) Add(std::nullopt, BatchOfTokens(0, 1.0, 1.0));
  for (int i = 0; i < 9; ++i) Add(std::nullopt, BatchOfTokens(i, 1.0, 1.0));
  EXPECT_EQ(Value("tokens"), 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8);
}

TEST_F(RecentStepsTest, WithoutWeightsTheirSumsDoNotShow) {
  for (int i = 0; i < 8; ++i) {
    Add(std::nullopt, BatchOfTokens(3, 1.0, 1.0, /*has_weight=*/false));
  }
  EXPECT_EQ(Value("tokens"), 24);
  EXPECT_TRUE(std::isnan(Value("weighted_tokens")));
  EXPECT_TRUE(std::isnan(Value("weight_sum")));
}

TEST_F(RecentStepsTest, TheyLeaveAWindowAfterTheLastBatch) {
  for (int i = 0; i < 8; ++i) Add(std::nullopt, BatchOfTokens(3, 1.0, 1.0));
  recent_.HideGaugesBefore(now_);
  EXPECT_EQ(Value("tokens"), 24);
  recent_.HideGaugesBefore(now_ + std::chrono::seconds(1));
  EXPECT_TRUE(std::isnan(Value("tokens")));
}

}  // namespace
}  // namespace counterweight::server
