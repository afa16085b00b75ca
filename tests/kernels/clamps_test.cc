// Log ratios far beyond every clamp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/testing/backends.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using Clamps = EveryBackend;

constexpr float kFar[] = {25.0f, 60.0f, 1000.0f};
const float kExp20 = static_cast<float>(std::exp(20.0));
const float kExpMinus20 = static_cast<float>(std::exp(-20.0));

TEST_P(Clamps, WeightsStopAtTheClamp) {
  for (float l : kFar) {
    for (Level level :
         {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
      const Corrected corrected =
          Correct(WithWeight({.level = level, .aggregate_clamp = 20}),
                  OwnedBatch({RowOf({l}), RowOf({-l})}));
      EXPECT_FLOAT_EQ(corrected.weights[0], kExp20) << l << Name(level);
      EXPECT_FLOAT_EQ(corrected.weights[1], kExpMinus20) << l << Name(level);
    }
    const Corrected corrected =
        Correct(WithWeight({.level = Level::kToken, .token_clamp = 20}),
                OwnedBatch({RowOf({l, -l})}));
    EXPECT_FLOAT_EQ(corrected.weights[0], kExp20) << l;
    EXPECT_FLOAT_EQ(corrected.weights[1], kExpMinus20) << l;
  }
}

TEST_P(Clamps, UnclampedWeightsAreTheRatioOrInfinite) {
  const Corrected corrected =
      Correct(WithWeight({.level = Level::kToken}),
              OwnedBatch({RowOf({25, 60, 1000, -25, -60, -1000})}));
  EXPECT_FLOAT_EQ(corrected.weights[0], static_cast<float>(std::exp(25.0)));
  EXPECT_NEAR(corrected.weights[1] / std::exp(60.0), 1, 1e-5);
  EXPECT_EQ(corrected.weights[2], std::numeric_limits<float>::infinity());
  EXPECT_FLOAT_EQ(corrected.weights[3], static_cast<float>(std::exp(-25.0)));
  EXPECT_NEAR(corrected.weights[4] / std::exp(-60.0), 1, 1e-5);
  EXPECT_EQ(corrected.weights[5], 0.0f);
}

// The running mean is infinite as a ratio at the masked token too.
TEST_P(Clamps, MaskedTokensWeighNothingNextToInfiniteWeights) {
  for (Level level :
       {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
    Row row = RowOf({200, 200, 200});
    row.mask[1] = 0;
    const Corrected corrected =
        Correct(WithWeight({.level = level}), OwnedBatch({row}));
    const float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(corrected.weights, std::vector<float>({kInfinity, 0, kInfinity}))
        << Name(level);
    // Rows weigh in float64.
    EXPECT_GT(corrected.sums().weight.weight, std::numeric_limits<float>::max())
        << Name(level);
  }
}

TEST_P(Clamps, BoundsHoldForAnyLogRatio) {
  for (float l : kFar) {
    for (Level level :
         {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
      WeightSpec weight{
          .level = level, .bound = Bound::kTruncate, .lower = 0.5, .upper = 2};
      const OwnedBatch batch({RowOf({l}), RowOf({-l})});
      EXPECT_EQ(Correct(WithWeight(weight), batch).weights,
                std::vector<float>({2, 0.5f}));
      weight.bound = Bound::kMask;
      EXPECT_EQ(Correct(WithWeight(weight), batch).weights,
                std::vector<float>({0, 0}));
    }
  }
}

TEST_P(Clamps, DriftSumsStopAtTwentyNats) {
  const double u = std::expm1(20.0);
  for (float l : kFar) {
    const DriftSums drift = Correct({}, OwnedBatch({RowOf({l})})).sums().drift;
    EXPECT_EQ(drift.log_ratio, l);
    EXPECT_EQ(drift.abs_log_ratio, l);
    EXPECT_EQ(drift.k2, l * l / 2);
    EXPECT_NEAR(drift.excess / u, 1, 1e-6);
    EXPECT_NEAR(drift.excess_squared / (u * u), 1, 1e-6);
    EXPECT_NEAR(drift.chi2_sequence / std::expm1(40.0), 1, 1e-12);
    EXPECT_EQ(drift.histogram[kNumHistogramEdges], 1);
    EXPECT_EQ(drift.sequence_log_ratio_range.max, l);
  }
}

TEST_P(Clamps, K3StopsAtTheTokenClampOrNowhere) {
  for (float l : kFar) {
    RejectionRule rule{.estimator = Estimator::kK3,
                       .aggregation = Aggregation::kSum,
                       .upper = 1};
    rule.token_clamp = 20;
    const double clamped = std::expm1(20.0) - 20;
    BatchSums sums =
        Correct(WithRules({rule}), OwnedBatch({RowOf({l})})).sums();
    EXPECT_NEAR(sums.rules[0].sum / clamped, 1, 1e-6);
    EXPECT_EQ(sums.rules[0].dropped_tokens, 1);
    rule.token_clamp = kUnbounded;
    sums = Correct(WithRules({rule}), OwnedBatch({RowOf({-l})})).sums();
    EXPECT_NEAR(sums.rules[0].sum / (l - 1), 1, 1e-6);
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Clamps);

}  // namespace
}  // namespace counterweight::kernels
