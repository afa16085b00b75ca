// Sums whose bits are those of the multiset of their addends.
#include "kernels/math/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/walk/exact_columns.h"

namespace counterweight::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double SumOf(const std::vector<double>& addends) {
  ExactSum sum;
  for (const double x : addends) sum.add(x);
  return sum.sum();
}

// The exact sum rounded to float64, by the algorithm of Python's math.fsum
// (J. R. Shewchuk, Adaptive Precision Floating-Point Arithmetic, 1997), in
// long double, which is exact here: its last digit decides ties.
double Shewchuk(const std::vector<double>& addends) {
  std::vector<double> partials;
  for (double x : addends) {
    std::vector<double> next;
    for (double y : partials) {
      if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
      const double high = x + y;
      const double low = y - (high - x);
      if (low != 0.0) next.push_back(low);
      x = high;
    }
    next.push_back(x);
    partials = next;
  }
  double sum = 0.0;
  size_t n = partials.size();
  if (n == 0) return 0.0;
  sum = partials[--n];
  double low = 0.0;
  while (n > 0) {
    const double x = sum;
    const double y = partials[--n];
    sum = x + y;
    low = y - (sum - x);
    if (low != 0.0) break;
  }
  if (n > 0 && ((low < 0.0 && partials[n - 1] < 0.0) ||
                (low > 0.0 && partials[n - 1] > 0.0))) {
    const double twice = 2.0 * low;
    const double x = sum + twice;
    if (twice == x - sum) sum = x;
  }
  return sum;
}

std::vector<double> RandomAddends(std::mt19937_64& random, int count,
                                  int lowest, int highest) {
  std::uniform_int_distribution<int> exponent(lowest, highest);
  std::normal_distribution<double> normal;
  std::vector<double> addends;
  for (int i = 0; i < count; ++i) {
    addends.push_back(std::ldexp(normal(random), exponent(random)));
  }
  return addends;
}

TEST(ExactSum, OfNothingIsZero) {
  EXPECT_EQ(std::bit_cast<uint64_t>(SumOf({})), 0U);
  EXPECT_EQ(std::bit_cast<uint64_t>(SumOf({-0.0, -0.0})), 0U);
}

TEST(ExactSum, OfOneNumberIsTheNumber) {
  std::mt19937_64 random(1);
  for (const double x : RandomAddends(random, 2000, -100, 120)) {
    EXPECT_EQ(SumOf({x}), x);
  }
}

TEST(ExactSum, LosesNothingToCancellation) {
  EXPECT_EQ(SumOf({0x1p100, 1.0, -0x1p100}), 1.0);
  EXPECT_EQ(SumOf({0x1p126, 0x1p-80, -0x1p126, 0x1p-80}), 0x1p-79);
}

TEST(ExactSum, IsRoundedOnce) {
  // 1 + 2^-53 lies half way between two numbers; what is beyond decides.
  EXPECT_EQ(SumOf({1.0, 0x1p-53}), 1.0);
  EXPECT_EQ(SumOf({1.0, 0x1p-53, 0x1p-100}), 1.0 + 0x1p-52);
  EXPECT_EQ(SumOf({1.0, 0x1p-53, -0x1p-100}), 1.0);
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const auto addends =
        RandomAddends(random, 1 + round % 40, round % 2 == 0 ? -60 : -8,
                      round % 7 == 0 ? 300 : 30);
    EXPECT_EQ(SumOf(addends), Shewchuk(addends));
  }
}

TEST(ExactSum, DependsOnNoOrderAndNoGrouping) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> addends =
        RandomAddends(random, 300, -150, round % 3 == 0 ? 1000 : 125);
    const double expected = SumOf(addends);
    for (const size_t parts : {1, 2, 7, 40}) {
      std::shuffle(addends.begin(), addends.end(), random);
      std::vector<ExactBins<double>> bins(parts);
      for (auto& part : bins) part.clear();
      for (const double x : addends) bins[random() % parts].add(x);
      for (size_t p = 1; p < parts; ++p) bins[0].merge(bins[p]);
      EXPECT_EQ(bins[0].take(), expected);
    }
  }
}

TEST(ExactSum, HoldsWhatFloat64Does) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  EXPECT_EQ(SumOf({kLargest}), kLargest);
  EXPECT_EQ(SumOf({kLargest, kLargest, -kLargest}), kLargest);
  EXPECT_EQ(SumOf({kLargest, kLargest}), kInfinity);
  EXPECT_EQ(SumOf({1e217, 1.0, -1e217}), 1.0);
  EXPECT_EQ(SumOf({0x1p130, 1.0, 0x1p-100}), 0x1p130);
  EXPECT_EQ(SumOf({0x1p127, 0x1p74, 0x1p40}), 0x1p127 + 0x1p75);
  EXPECT_EQ(SumOf({kInfinity, 1.0, 1e300}), kInfinity);
  EXPECT_EQ(SumOf({-kInfinity, 1e300}), -kInfinity);
  EXPECT_TRUE(std::isnan(SumOf({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(SumOf({kNaN, 1e300})));
}

TEST(ExactSum, DropsOfEachAddendWhatIsBelowTheLastGrid) {
  EXPECT_EQ(SumOf({0x1p-174}), 0x1p-174);
  EXPECT_EQ(SumOf({0x1p-180, 0x1p-180}), 0.0);
}

template <int kCount>
void ExpectEachAddedAsByItself(std::mt19937_64& random, double extra) {
  double group[kCount];
  const auto addends =
      RandomAddends(random, kCount, -180, random() % 2 == 0 ? 10 : 60);
  std::copy_n(addends.begin(), kCount, group);
  group[random() % kCount] = extra;
  ExactBins<double> one_by_one;
  one_by_one.clear();
  for (const double x : group) one_by_one.add(x);
  ExactBins<double> together;
  together.clear();
  together.add_each(group);
  EXPECT_EQ(together.has_high, one_by_one.has_high);
  for (int k = 0; k < kBins; ++k) {
    EXPECT_EQ(std::bit_cast<uint64_t>(together.low[k]),
              std::bit_cast<uint64_t>(one_by_one.low[k]))
        << "bin " << k << " of " << kCount << " with " << extra;
  }
  const double sum = one_by_one.take();
  EXPECT_EQ(std::bit_cast<uint64_t>(together.take()),
            std::bit_cast<uint64_t>(sum));
}

TEST(ExactSum, OfAGroupIsThatOfItsAddends) {
  std::mt19937_64 random(5);
  for (const double extra :
       {0.0, -0.0, 1.0, 0x1p25, 0x1.fffffffffffffp24, 0x1p65, -0x1p70, 0x1p130,
        1e300, kInfinity, -kInfinity, kNaN, 0x1p-160, 0x1p-1060}) {
    for (int round = 0; round < 20; ++round) {
      ExpectEachAddedAsByItself<1>(random, extra);
      ExpectEachAddedAsByItself<2>(random, extra);
      ExpectEachAddedAsByItself<4>(random, extra);
      ExpectEachAddedAsByItself<8>(random, extra);
    }
  }
}

// Bins that were not carried in time would lose bits: each addend fills its
// bin, and groups of several sizes meet at the limit.
TEST(ExactSum, OfGroupsHasRoomForAnyNumber) {
  static constexpr double kAddend = 0x1.fffffffffffffp24;
  ExactRegisters<1> registers;
  registers.begin(1, [](int) { return true; });
  ExactSum expected;
  const auto add = [&]<int kCount>() {
    registers.add_each<kCount>([](int, int) { return splat_wide(kAddend); });
    for (int i = 0; i < kCount; ++i) expected.add(kAddend);
  };
  for (int i = 0; i < 2 * kMostAddends; ++i) {
    add.operator()<8>();
    if (i % 3 == 0) add.operator()<1>();
    if (i % 5 == 0) add.operator()<4>();
  }
  registers.take([&](int, WideVec sum) {
    for (int i = 0; i < kWideLanes; ++i) {
      const double lane = reinterpret_cast<const double*>(&sum)[i];
      EXPECT_EQ(lane, expected.sum());
    }
  });
}

TEST(ExactSum, OfRegistersIsThatOfEachColumn) {
  std::mt19937_64 random(4);
  constexpr int kColumns = 13;
  constexpr int kRows = 9;
  double rows[kRows][kColumns] = {};
  for (auto& row : rows) {
    const auto addends = RandomAddends(random, kColumns, -140, 130);
    std::copy_n(addends.begin(), kColumns, row);
  }
  double sums[kColumns] = {};
  add_up(
      kColumns, kRows, [&](int64_t i) { return rows[i]; }, sums);
  for (int c = 0; c < kColumns; ++c) {
    std::vector<double> column;
    for (const auto& row : rows) column.push_back(row[c]);
    EXPECT_EQ(sums[c], SumOf(column)) << c;
  }
}

}  // namespace
}  // namespace counterweight::kernels
