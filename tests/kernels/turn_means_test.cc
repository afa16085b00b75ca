// Means over turns: what a number that is not finite does to them, their order
// in a spec, and that they end when the result is no longer wanted.
#include "kernels/turn_means.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/batch_builder.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

CorrectionSpec OfTurns(NonFinitePolicy policy) {
  CorrectionSpec spec = WithWeight({.level = Level::kTurn});
  spec.non_finite = policy;
  return spec;
}

// An empty row, log ratios 1, NaN, 3 | masked | 5, and a row of its own.
std::vector<Row> ExampleRows() {
  Row row = RowOf({1.0f, kNaN, 3.0f, kNaN, 5.0f});
  row.mask[3] = 0;
  return {RowOf({}), row, RowOf({7.0f})};
}

std::vector<float> MeansOf(const CorrectionSpec& spec) {
  const OwnedBatch owned(ExampleRows());
  Batch batch = owned.view();
  TurnMeans means;
  EXPECT_TRUE(means.Make(spec, batch, {}));
  means.AddTo(&batch);
  const auto* const made =
      static_cast<const float*>(batch.tensor(InputRole::kMeans).data);
  return {made, made + owned.num_positions()};
}

TEST(TurnMeans, ATokenThatIsNotFiniteEndsNoTurn) {
  EXPECT_THAT(MeansOf(OfTurns(NonFinitePolicy::kDrop)),
              ElementsAre(2, 2, 2, 0, 5, 7));
  constexpr float kMean = 4.0f / 3.0f;
  EXPECT_THAT(MeansOf(OfTurns(NonFinitePolicy::kNeutralize)),
              ElementsAre(kMean, kMean, kMean, 0, 5, 7));
}

TEST(TurnMeans, NoRowIsReadOnceTheResultIsNotWanted) {
  const OwnedBatch owned(ExampleRows());
  int calls = 0;
  EXPECT_FALSE(TurnMeans().Make(OfTurns(NonFinitePolicy::kDrop), owned.view(),
                                [&] { return ++calls == 2; }));
  EXPECT_EQ(calls, 2);
}

TEST(TurnMeans, TheWeightsComeFirst) {
  const RejectionRule of_k3{.estimator = Estimator::kK3,
                            .aggregation = Aggregation::kTurnMean,
                            .token_clamp = 4,
                            .upper = 1};
  const RejectionRule of_ratio{.aggregation = Aggregation::kTurnMean,
                               .lower = -1};
  const CorrectionSpec spec = WithTurnMeans(WithWeightAndRules(
      {.level = Level::kTurn, .upper = 2}, {of_k3, {.upper = 3}, of_ratio}));
  EXPECT_EQ(spec.weight, (WeightSpec{.level = Level::kToken,
                                     .source = RatioSource::kMeans,
                                     .upper = 2}));
  EXPECT_EQ(spec.rules[0],
            (RejectionRule{.source = RatioSource::kOtherMeans, .upper = 1}));
  EXPECT_EQ(spec.rules[1], RejectionRule{.upper = 3});
  EXPECT_EQ(spec.rules[2],
            (RejectionRule{.source = RatioSource::kMeans, .lower = -1}));
}

TEST(TurnMeans, TheirMemoryIsOfOneMoreThanThereAre) {
  EXPECT_EQ(TurnMeans::Bytes(BusySpec(), 1000), 0);
  EXPECT_THAT(TurnStatistics(BusySpec()), IsEmpty());
  EXPECT_EQ(TurnMeans::Bytes(OfTurns(NonFinitePolicy::kDrop), 1000), 8000);
}

}  // namespace
}  // namespace counterweight::kernels
