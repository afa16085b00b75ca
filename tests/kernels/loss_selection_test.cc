// Tokens that KL_COV and CLIP_COV choose from a batch.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"

namespace counterweight::kernels {
namespace {

// Positions without a gradient because of CLIP_COV.
using Chosen = std::set<size_t>;

class LossSelection : public EveryBackend {
 protected:
  Chosen Choose(const LossSpec& loss, const OwnedBatch& batch) {
    const Corrected corrected = Correct(WithLoss(loss), batch);
    Chosen chosen;
    for (size_t t = 0; t < corrected.gradient.size(); ++t)
      if (corrected.gradient[t] == 0.0f) chosen.insert(t);
    EXPECT_EQ(corrected.sums().loss.clipped,
              static_cast<int64_t>(chosen.size()));
    return chosen;
  }
};

// Returns a loss in which every token is a candidate: PPO clips none.
LossSpec AnyToken(double fraction, uint64_t seed) {
  return {.surrogate = Surrogate::kClipCov,
          .covariance_fraction = fraction,
          .covariance_lower = -1e9,
          .covariance_upper = 1e9,
          .seed = seed};
}

OwnedBatch Tokens(uint64_t seed, const std::vector<int64_t>& lengths) {
  Random random(seed);
  return OwnedBatch(RandomRows(random, lengths, {.masked = 0}));
}

TEST_P(LossSelection, TheSameSeedChoosesTheSameTokens) {
  const OwnedBatch batch = Tokens(1, {300, 5000, 0, 7});
  for (uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
    const Chosen chosen = Choose(AnyToken(0.1, seed), batch);
    EXPECT_EQ(chosen.size(), 530u);
    EXPECT_EQ(chosen, Choose(AnyToken(0.1, seed), batch));
  }
}

TEST_P(LossSelection, OtherSeedsChooseOthers) {
  const OwnedBatch batch = Tokens(2, {1000});
  const Chosen a = Choose(AnyToken(0.1, 1), batch),
               b = Choose(AnyToken(0.1, 2), batch),
               c = Choose(AnyToken(0.1, uint64_t{1} << 32), batch);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(b, c);
}

// All tokens are equally likely: over 200 seeds 50 +- 6.1 times.
TEST_P(LossSelection, EveryTokenIsAsLikely) {
  const OwnedBatch batch = Tokens(3, {40, 60});
  std::vector<int> times(100, 0);
  for (uint64_t seed = 0; seed < 200; ++seed)
    for (size_t t : Choose(AnyToken(0.25, seed), batch)) times[t] += 1;
  for (int count : times) {
    EXPECT_GT(count, 50 - 5 * 6.2);
    EXPECT_LT(count, 50 + 5 * 6.2);
  }
}

// A smaller selection is part of a larger one: the random order does not depend
// on the share.
TEST_P(LossSelection, SharesAreNested) {
  const OwnedBatch batch = Tokens(4, {200});
  const Chosen few = Choose(AnyToken(0.05, 9), batch),
               more = Choose(AnyToken(0.5, 9), batch);
  EXPECT_EQ(few.size(), 10u);
  EXPECT_EQ(more.size(), 100u);
  for (size_t t : few) EXPECT_TRUE(more.contains(t)) << t;
}

TEST_P(LossSelection, AtLeastOneAndAtMostTheCandidates) {
  const OwnedBatch batch = Tokens(5, {50});
  EXPECT_EQ(Choose(AnyToken(1e-6, 1), batch).size(), 1u);
  LossSpec none = AnyToken(1, 1);
  none.covariance_lower = none.covariance_upper = 0;
  EXPECT_EQ(Choose(none, batch).size(), 0u);
  LossSpec positive = AnyToken(1, 1);
  positive.covariance_lower = 0;
  const size_t above = Choose(positive, batch).size();
  EXPECT_GT(above, 0u);
  EXPECT_LT(above, 50u);
}

TEST_P(LossSelection, NothingIsChosenFromNothing) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{}, {0}, {0, 0}})
    EXPECT_TRUE(Choose(AnyToken(1, 1), Tokens(6, lengths)).empty());
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossSelection);

}  // namespace
}  // namespace counterweight::kernels
