// Importance weights, computed by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/backends.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class KnownWeights : public EveryBackend {
 protected:
  void ExpectWeights(const WeightSpec& weight, const std::vector<Row>& rows,
                     const std::vector<double>& expected) {
    const OwnedBatch batch(rows);
    const Corrected corrected = Correct(WithWeight(weight), batch);
    ASSERT_EQ(corrected.weights.size(), expected.size());
    for (size_t t = 0; t < expected.size(); ++t)
      EXPECT_FLOAT_EQ(corrected.weights[t], static_cast<float>(expected[t]))
          << t;
  }
};

// Log ratios 0.5, -0.25, 1 and one at a masked position.
Row Example() {
  Row row = RowOf({0.5f, -0.25f, 9.0f, 1.0f});
  row.mask[2] = 0;
  return row;
}

TEST_P(KnownWeights, NoWeightIsOneWhereTokensCount) {
  ExpectWeights({}, {Example()}, {1, 1, 0, 1});
}

TEST_P(KnownWeights, TokenIsTheRatioOfTheToken) {
  ExpectWeights({.level = Level::kToken}, {Example()},
                {1.6487212707, 0.7788007831, 0, 2.7182818285});
}

TEST_P(KnownWeights, SequenceIsTheProductOfRatios) {
  // exp(1.25)
  ExpectWeights({.level = Level::kSequence}, {Example()},
                {3.4903429575, 3.4903429575, 0, 3.4903429575});
}

TEST_P(KnownWeights, GeometricIsTheGeometricMeanOfRatios) {
  // exp(1.25 / 3)
  ExpectWeights({.level = Level::kGeometric}, {Example()},
                {1.5168967964, 1.5168967964, 0, 1.5168967964});
}

TEST_P(KnownWeights, PrefixIsTheGeometricMeanSoFar) {
  // exp(0.5), exp(0.25 / 2), exp(1.25 / 3)
  ExpectWeights({.level = Level::kPrefix}, {Example()},
                {1.6487212707, 1.1331484531, 0, 1.5168967964});
}

TEST_P(KnownWeights, TurnIsTheGeometricMeanOfTheTokensRun) {
  // exp((0.5 - 0.25) / 2), exp(1)
  ExpectWeights({.level = Level::kTurn}, {Example()},
                {1.1331484531, 1.1331484531, 0, 2.7182818285});
  // exp((0.4 - 0.25) / 2), exp(min(1, 0.4))
  ExpectWeights({.level = Level::kTurn, .token_clamp = 0.4}, {Example()},
                {1.0778841509, 1.0778841509, 0, 1.4918246976});
  ExpectWeights({.level = Level::kTurn, .aggregate_clamp = 0.1}, {Example()},
                {1.1051709181, 1.1051709181, 0, 1.1051709181});
}

TEST_P(KnownWeights, TokenClampComesBeforeTheSum) {
  // exp(0.4 - 0.25 + 0.4)
  ExpectWeights({.level = Level::kSequence, .token_clamp = 0.4}, {Example()},
                {1.7332530179, 1.7332530179, 0, 1.7332530179});
}

TEST_P(KnownWeights, AggregateClampComesAfterTheSum) {
  ExpectWeights({.level = Level::kSequence, .aggregate_clamp = 1.0},
                {Example()}, {2.7182818285, 2.7182818285, 0, 2.7182818285});
}

TEST_P(KnownWeights, TruncateClampsIntoTheInterval) {
  ExpectWeights({.level = Level::kToken,
                 .bound = Bound::kTruncate,
                 .lower = 0.875,
                 .upper = 2},
                {Example()}, {1.6487212707, 0.875, 0, 2});
}

TEST_P(KnownWeights, MaskZeroesOutsideTheInterval) {
  ExpectWeights({.level = Level::kToken,
                 .bound = Bound::kMask,
                 .lower = 0.875,
                 .upper = 2},
                {Example()}, {1.6487212707, 0, 0, 0});
}

TEST_P(KnownWeights, EqualityKeeps) {
  ExpectWeights(
      {.level = Level::kToken, .bound = Bound::kMask, .lower = 1, .upper = 1},
      {RowOf({0, 1e-3f, -1e-3f})}, {1, 0, 0});
  ExpectWeights({.level = Level::kGeometric,
                 .bound = Bound::kMask,
                 .lower = 1,
                 .upper = 1},
                {RowOf({0.5f, -0.5f})}, {1, 1});
}

TEST_P(KnownWeights, TokenWeightsNormaliseOverTokens) {
  // Truncated: 2, 2, 0.5; mean 1.5.
  ExpectWeights({.level = Level::kToken,
                 .bound = Bound::kTruncate,
                 .lower = 0.5,
                 .upper = 2,
                 .normalize = true},
                {RowOf({5, 6}), RowOf({-7})}, {4.0 / 3, 4.0 / 3, 1.0 / 3});
}

TEST_P(KnownWeights, SequenceWeightsNormaliseOverSequences) {
  // Truncated: 2 and 0.5, and an empty row that does not count; mean 1.25.
  ExpectWeights({.level = Level::kSequence,
                 .bound = Bound::kTruncate,
                 .lower = 0.5,
                 .upper = 2,
                 .normalize = true},
                {RowOf({5, 6}), RowOf({}), RowOf({-7})}, {1.6, 1.6, 0.4});
}

TEST_P(KnownWeights, EmptySequencesMayCountWithZero) {
  // Truncated: 2, 0 and 0.5; mean 2.5 / 3.
  for (const Level level : {Level::kSequence, Level::kGeometric}) {
    ExpectWeights({.level = level,
                   .bound = Bound::kTruncate,
                   .lower = 0.5,
                   .upper = 2,
                   .normalize = true,
                   .counts_empty_rows = true},
                  {RowOf({5, 6}), RowOf({}), RowOf({-7})}, {2.4, 2.4, 0.6});
  }
}

TEST_P(KnownWeights, AMeanOfZeroDividesNothing) {
  ExpectWeights({.level = Level::kToken,
                 .bound = Bound::kMask,
                 .upper = 2,
                 .normalize = true},
                {RowOf({5, 6})}, {0, 0});
}

TEST_P(KnownWeights, EachSourceHasItsOwnRatio) {
  Row row = RowOf({0.5f});  // old - rollout
  row[InputRole::kCurrent] = {2.0f};
  ExpectWeights({.level = Level::kToken, .source = RatioSource::kOldRollout},
                {row}, {std::exp(0.5)});
  ExpectWeights(
      {.level = Level::kToken, .source = RatioSource::kCurrentRollout}, {row},
      {std::exp(2.0)});
  ExpectWeights({.level = Level::kToken, .source = RatioSource::kCurrentOld},
                {row}, {std::exp(1.5)});
}

COUNTERWEIGHT_ON_EVERY_BACKEND(KnownWeights);

}  // namespace
}  // namespace counterweight::kernels
