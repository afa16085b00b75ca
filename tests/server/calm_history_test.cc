#include "server/observe/calm_history.h"

#include <gtest/gtest.h>

#include <cmath>

namespace counterweight::server {
namespace {

using kernels::doctor::BucketOf;

CalmWeights Of(double quantile) {
  CalmWeights weights;
  weights.spec.level = kernels::Level::kToken;
  weights.quantile = quantile;
  return weights;
}

// `n` weights exp(a), nine tenths of them 1.
CalmBatch Batch(int64_t step, int64_t n, double a, double quantile = 0.95) {
  CalmBatch batch{.of = Of(quantile), .step = step};
  batch.counts[static_cast<size_t>(BucketOf(a))] = n / 10;
  batch.counts[static_cast<size_t>(BucketOf(0.0))] = n - n / 10;
  return batch;
}

class CalmHistoryTest : public testing::Test {
 protected:
  // Takes the step's level, then adds its batch.
  CalmLevel Run(int64_t step, int64_t n = 100, double a = 0.25) {
    const CalmLevel level = history_.At(step);
    history_.Add(Batch(step, n, a));
    return level;
  }

  CalmHistory history_{Of(0.95)};
};

TEST_F(CalmHistoryTest, EightStepsMakeALevelForAllOthers) {
  for (int64_t step = 0; step < 8; ++step) {
    const CalmLevel level = Run(step);
    EXPECT_FALSE(level.is_calm);
    EXPECT_EQ(level.steps, step);
    EXPECT_EQ(level.weights, 100 * step);
  }
  // The steps that made it keep what they had.
  EXPECT_FALSE(history_.At(7).is_calm);
  const CalmLevel level = Run(8);
  EXPECT_TRUE(level.is_calm);
  EXPECT_EQ(level.steps, 8);
  EXPECT_EQ(level.weights, 800);
  EXPECT_EQ(level.bound, std::exp(0.25));
  for (const int64_t step : {8, 9, 1000, -1}) {
    Run(step, 1000, 3.0);
    EXPECT_EQ(history_.At(step).bound, std::exp(0.25)) << step;
  }
  EXPECT_FALSE(history_.At(3).is_calm);
}

// A fast rank's next step begins before the slow one's batch is counted.
TEST_F(CalmHistoryTest, AStepThatAskedBeforeNeverGetsIt) {
  for (int64_t step = 0; step < 7; ++step) Run(step);
  EXPECT_FALSE(history_.At(7).is_calm);
  EXPECT_FALSE(history_.At(8).is_calm);
  history_.Add(Batch(7, 100, 0.25));
  EXPECT_TRUE(history_.At(9).is_calm);
  EXPECT_FALSE(history_.At(8).is_calm);
  EXPECT_FALSE(history_.At(7).is_calm);
}

TEST_F(CalmHistoryTest, BatchesOfAStepAddUp) {
  for (int64_t step = 0; step < 4; ++step) {
    for (int rank = 0; rank < 2; ++rank) Run(step, 1000);
  }
  const CalmLevel level = history_.At(4);
  EXPECT_FALSE(level.is_calm);
  EXPECT_EQ(level.steps, 4);
  EXPECT_EQ(level.weights, 8000);
}

TEST_F(CalmHistoryTest, StepsWithThriceTheDriftDoNotCount) {
  for (int64_t step = 0; step < 8; ++step) {
    Run(step, 100, step < 2 ? 4.0 : 0.25);
  }
  const CalmLevel level = Run(8);
  EXPECT_TRUE(level.is_calm);
  EXPECT_EQ(level.steps, 6);
  EXPECT_EQ(level.weights, 600);
  EXPECT_EQ(level.bound, std::exp(0.25));
}

TEST_F(CalmHistoryTest, AQuantileTakesTenWeightsAboveIt) {
  // 200 of them for 0.95.
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_FALSE(Run(step, 20).is_calm) << step;
  }
  EXPECT_TRUE(Run(10, 20).is_calm);
}

TEST_F(CalmHistoryTest, StepsWithoutWeightsAreNone) {
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_FALSE(Run(step, 0).is_calm);
  }
  for (int64_t step = 20; step < 28; ++step) EXPECT_FALSE(Run(step).is_calm);
  EXPECT_TRUE(Run(28).is_calm);
}

TEST_F(CalmHistoryTest, StepsThatAreTooSmallMakeRoomForNewer) {
  for (int64_t step = 0; step < 1000; ++step) {
    const CalmLevel level = Run(step, 1);
    EXPECT_FALSE(level.is_calm);
    EXPECT_LE(level.steps, static_cast<int64_t>(kMostCalmSteps));
  }
}

TEST(CalmHistoriesTest, KindsOfWeightsAreApartAndBounded) {
  CalmHistories histories;
  for (int64_t step = 0; step < 8; ++step) {
    histories.At(Of(0.95), step);
    histories.Add(Batch(step, 100, 0.25));
  }
  EXPECT_TRUE(histories.At(Of(0.95), 8)->is_calm);
  CalmWeights sequence = Of(0.95);
  sequence.spec.level = kernels::Level::kSequence;
  EXPECT_EQ(histories.At(sequence, 8)->weights, 0);
  EXPECT_EQ(histories.At(Of(0.9), 8)->weights, 0);
  EXPECT_TRUE(histories.At(Of(0.8), 8).has_value());
  EXPECT_FALSE(histories.At(Of(0.7), 8).has_value());
  EXPECT_TRUE(histories.At(Of(0.95), 9)->is_calm);
}

}  // namespace
}  // namespace counterweight::server
