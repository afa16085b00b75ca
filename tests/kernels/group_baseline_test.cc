#include "kernels/group_baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace counterweight::kernels {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

constexpr float kNoReward = std::numeric_limits<float>::quiet_NaN();

struct Rows {
  std::vector<float> rewards;
  std::vector<int64_t> ids, tokens, kept;

  GroupAdvantages Under(const GroupBaseline& baseline) const {
    return AdvantagesOf(baseline, {rewards, ids, tokens, kept});
  }
};

Rows OneGroup(std::vector<float> rewards, std::vector<int64_t> kept) {
  Rows rows{.rewards = std::move(rewards), .kept = std::move(kept)};
  rows.ids.resize(rows.rewards.size());
  rows.tokens.assign(rows.rewards.size(), 1);
  return rows;
}

constexpr GroupBaseline kGrpo = {.std = RewardStd::kGroup, .epsilon = 1e-6};
constexpr GroupBaseline kDrGrpo;
constexpr GroupBaseline kRloo = {.leaves_one_out = true};

GroupBaseline With(GroupBaseline baseline, GroupVoters voters) {
  baseline.voters = voters;
  return baseline;
}

auto Near(float x) { return FloatNear(x, 1e-5F * std::max(1.0F, std::abs(x))); }

TEST(GroupBaselineTest, TheOnlySurvivorHasNoAdvantage) {
  // github.com/verl-project/verl/issues/6375: -49.5 where 0 is right.
  const Rows rows = OneGroup({100, 1}, {0, 1});
  EXPECT_THAT(rows.Under(kDrGrpo).advantages, ElementsAre(0, 0));
  EXPECT_THAT(rows.Under(kRloo).advantages, ElementsAre(0, 0));
  EXPECT_THAT(rows.Under(With(kDrGrpo, GroupVoters::kAll)).advantages,
              ElementsAre(49.5, -49.5));
  EXPECT_THAT(rows.Under(With(kRloo, GroupVoters::kAll)).advantages,
              ElementsAre(99, -99));
}

TEST(GroupBaselineTest, SurvivorsVote) {
  const Rows rows = OneGroup({1, 1, 0, 0}, {1, 0, 1, 1});
  EXPECT_THAT(
      rows.Under(kGrpo).advantages,
      ElementsAre(Near(1.154699F), 0, Near(-0.577349F), Near(-0.577349F)));
  EXPECT_THAT(rows.Under(kRloo).advantages, ElementsAre(1, 0, -0.5, -0.5));
  EXPECT_THAT(rows.Under(kRloo).baselines, ElementsAre(0, 0, 0.5, 0.5));
  EXPECT_THAT(rows.Under(With(kGrpo, GroupVoters::kAll)).advantages,
              ElementsAre(Near(0.866024F), Near(0.866024F), Near(-0.866024F),
                          Near(-0.866024F)));
}

TEST(GroupBaselineTest, AHalfKeptRowIsMeasuredByFullyKeptOnes) {
  Rows rows = OneGroup({5, 1, 3}, {1, 2, 2});
  rows.tokens = {2, 2, 2};
  const GroupAdvantages made =
      rows.Under(With(kDrGrpo, GroupVoters::kFullyKept));
  EXPECT_THAT(made.advantages, ElementsAre(3, -1, 1));
  EXPECT_EQ(made.counts.voters, 2);
  EXPECT_EQ(made.counts.voters_dropped, 1);
  // The others of a row that does not vote are all voters.
  EXPECT_THAT(rows.Under(With(kRloo, GroupVoters::kFullyKept)).advantages,
              ElementsAre(3, -2, 2));
}

TEST(GroupBaselineTest, LonelyGroups) {
  Rows rows = OneGroup({3, 3, 7}, {1, 1, 1});
  rows.ids = {-5, -5, 9};
  GroupBaseline raw = kGrpo;
  raw.lonely_is_raw = true;
  EXPECT_THAT(rows.Under(raw).advantages, ElementsAre(0, 0, Near(6.999993F)));
  const GroupAdvantages zero = rows.Under(kGrpo);
  EXPECT_THAT(zero.advantages, ElementsAre(0, 0, 0));
  EXPECT_EQ(zero.counts.groups, 2);
  EXPECT_EQ(zero.counts.lonely, 1);
  EXPECT_EQ(zero.counts.without_signal, 2);
  GroupBaseline one = kDrGrpo;
  one.fewest_voters = 1;
  EXPECT_EQ(rows.Under(one).counts.lonely, 0);
  one.fewest_voters = 3;
  EXPECT_EQ(rows.Under(one).counts.lonely, 2);
}

TEST(GroupBaselineTest, ADeviationOfTheOthers) {
  GroupBaseline others = kRloo;
  others.std = RewardStd::kOthers;
  // Others 1 and 3 have mean 2, deviation sqrt 2. Row 3 has nearly all squares
  // of the second group: of the others 0.25 is left.
  Rows rows = OneGroup({4, 1, 3, 1e8F, 0.25F, 0.5F, 0.75F}, {});
  rows.ids = {0, 0, 0, 1, 1, 1, 1};
  rows.kept = rows.tokens;
  const GroupAdvantages made = rows.Under(others);
  EXPECT_THAT(made.advantages[0], Near(2.0F / std::sqrt(2.0F)));
  EXPECT_THAT(made.advantages[3], Near((1e8F - 0.5F) / 0.25F));
  // The others of one of two have no deviation: nothing is divided.
  EXPECT_THAT(OneGroup({1, 4}, {1, 1}).Under(others).advantages,
              ElementsAre(-3, 3));
}

TEST(GroupBaselineTest, WhiteningCountsKeptTokens) {
  Rows rows = OneGroup({0, 4, 2}, {1, 3, 0});
  rows.tokens = {1, 3, 5};
  GroupBaseline baseline = kDrGrpo;
  // -2 once and 2 three times: mean 1, squares 9 + 3.
  baseline.whitening = Whitening::kSample;
  EXPECT_THAT(rows.Under(baseline).advantages,
              ElementsAre(Near(-1.5F), Near(0.5F), 0));
  baseline.whitening = Whitening::kPopulation;
  EXPECT_THAT(rows.Under(baseline).advantages,
              ElementsAre(Near(-3.0F / std::sqrt(3.0F)),
                          Near(1.0F / std::sqrt(3.0F)), 0));
  // Whitening reads clamped advantages: -1 once and 1 three times.
  baseline.clip = 1.0;
  EXPECT_THAT(rows.Under(baseline).advantages,
              ElementsAre(Near(-1.5F / std::sqrt(0.75F)),
                          Near(0.5F / std::sqrt(0.75F)), 0));
  EXPECT_THAT(OneGroup({1, 1}, {1, 1}).Under(baseline).advantages,
              ElementsAre(0, 0));
}

TEST(GroupBaselineTest, ARowWithoutARewardDoesNotVote) {
  const GroupAdvantages made = OneGroup({kNoReward, 1, 3}, {1, 1, 1})
                                   .Under(With(kDrGrpo, GroupVoters::kAll));
  EXPECT_THAT(made.advantages, ElementsAre(0, -1, 1));
  EXPECT_EQ(made.counts.missing_rewards, 1);
  EXPECT_EQ(made.counts.voters_dropped, 0);
}

TEST(GroupBaselineTest, BiasOfRejection) {
  Rows rows = OneGroup({1, 2, 6, 8}, {10, 20, 0, 0});
  rows.tokens = {10, 20, 40, 0};
  const GroupAdvantages made = rows.Under(kDrGrpo);
  EXPECT_EQ(made.kept.reward, 1.5);
  EXPECT_EQ(made.kept.length, 15.0);
  // The last row had no tokens to reject.
  EXPECT_EQ(made.rejected.reward, 6.0);
  EXPECT_EQ(made.rejected.length, 40.0);
  EXPECT_EQ(made.counts.voters_dropped, 1);
}

// Rows of groups of any size, with sizes at which the order of addition
// matters.
Rows RandomRows(std::mt19937* random, size_t size) {
  Rows rows;
  for (size_t i = 0; i < size; ++i) {
    rows.rewards.push_back(
        std::ldexp(static_cast<float>((*random)() % 1000) - 500.0F,
                   static_cast<int>((*random)() % 40) - 20));
    rows.ids.push_back(static_cast<int64_t>((*random)() % (size / 5 + 1)));
    rows.tokens.push_back(static_cast<int64_t>((*random)() % 4));
    rows.kept.push_back(
        rows.tokens.back() == 0
            ? 0
            : static_cast<int64_t>((*random)() % (rows.tokens.back() + 1)));
  }
  return rows;
}

GroupBaseline RandomBaseline(std::mt19937* random) {
  return {.leaves_one_out = (*random)() % 2 == 0,
          .std = RewardStd((*random)() % 4),
          .voters = GroupVoters((*random)() % 3),
          .lonely_is_raw = (*random)() % 2 == 0,
          .epsilon = 1e-6,
          .clip = (*random)() % 2 == 0 ? 10.0 : HUGE_VAL,
          .whitening = Whitening((*random)() % 3)};
}

TEST(GroupBaselineTest, TheOrderOfRowsChangesNoBit) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const GroupBaseline baseline = RandomBaseline(&random);
    const Rows rows = RandomRows(&random, 1 + random() % 60);
    std::vector<size_t> order(rows.rewards.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    Rows moved;
    for (const size_t row : order) {
      moved.rewards.push_back(rows.rewards[row]);
      moved.ids.push_back(rows.ids[row]);
      moved.tokens.push_back(rows.tokens[row]);
      moved.kept.push_back(rows.kept[row]);
    }
    const GroupAdvantages made = rows.Under(baseline);
    const GroupAdvantages other = moved.Under(baseline);
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(std::memcmp(&made.advantages[order[i]], &other.advantages[i],
                            sizeof(float)),
                0);
      ASSERT_EQ(made.baselines[order[i]], other.baselines[i]);
    }
    EXPECT_EQ(made.counts.without_signal, other.counts.without_signal);
    EXPECT_EQ(std::memcmp(&made.kept, &other.kept, sizeof(RowMeans)), 0);
  }
}

TEST(GroupBaselineTest, AGroupOfAllRowsIsNotQuadratic) {
  // 10^10 steps would take longer than the test may.
  constexpr size_t kRows = 100000;
  for (const float reward : {0.0F, 1.0F}) {
    Rows rows = OneGroup(std::vector<float>(kRows, reward), {});
    rows.rewards[7] = 1.0F;
    rows.kept = rows.tokens;
    GroupBaseline others = kRloo;
    others.std = RewardStd::kOthers;
    const GroupAdvantages made = rows.Under(others);
    EXPECT_EQ(made.advantages[7], 1.0F - reward);
  }
}

}  // namespace
}  // namespace counterweight::kernels
