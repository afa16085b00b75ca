#include "kernels/doctor/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/testing/batch_builder.h"

namespace counterweight::kernels::doctor {
namespace {

using testing::SizeIs;

constexpr InputRole kEngine = InputRole::kRollout;
constexpr InputRole kTrainer = InputRole::kOld;

// A row of tokens with the log ratio l each.
Row RowOf(int tokens, float l) {
  Row row;
  for (int i = 0; i < tokens; ++i) {
    row.mask.push_back(1);
    row[kEngine].push_back(-2.0F);
    row[kTrainer].push_back(-2.0F + l);
  }
  return row;
}

double K3(double l) { return std::expm1(l) - l; }

AuditSums SumsOf(const std::vector<Row>& rows, InputRole trained = kTrainer) {
  const OwnedBatch batch(rows, {});
  return SumsOfRows(batch.view(), trained, nullptr);
}

AuditSums Plus(AuditSums sums, const AuditSums& more) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  return sums;
}

TEST(AuditTest, TheMeanAndItsInterval) {
  // 16 rows of one token and 16 of three: K is k or 3 k, so that K - R n is 0
  // and the interval is a point.
  std::vector<Row> rows;
  for (int i = 0; i < 32; ++i) rows.push_back(RowOf(i % 2 == 0 ? 1 : 3, 0.5F));
  const AuditedDrift point = DriftOf(SumsOf(rows));
  EXPECT_EQ(point.rows, 32);
  EXPECT_EQ(point.tokens, 64);
  EXPECT_NEAR(point.k3, K3(0.5), 1e-7);
  ASSERT_TRUE(point.interval);
  EXPECT_NEAR(point.interval->low, point.k3, 1e-7);
  EXPECT_NEAR(point.interval->high, point.k3, 1e-7);
  EXPECT_EQ(point.more_rows, 0);
  // Half of the rows drift by nothing: (K - R n)^2 is (R n)^2 for each.
  for (int i = 0; i < 32; ++i) rows.push_back(RowOf(i % 2 == 0 ? 1 : 3, 0.0F));
  const AuditedDrift half = DriftOf(SumsOf(rows));
  const double mean = K3(0.5) / 2.0;
  EXPECT_NEAR(half.k3, mean, 1e-7);
  const double squares = 32.0 * (1.0 + 9.0) * mean * mean;
  const double error = std::sqrt(64.0 * squares / 63.0) / 128.0;
  EXPECT_NEAR(half.interval->high, mean * std::exp(2.2 * error / mean), 1e-6);
  EXPECT_NEAR(half.interval->low, mean * std::exp(-2.2 * error / mean), 1e-6);
  const double width = 2.2 * error / mean;
  EXPECT_EQ(half.more_rows, std::ceil(64.0 * width * width / 0.01) - 64.0);
}

TEST(AuditTest, FewRowsHaveNoInterval) {
  const AuditedDrift drift =
      DriftOf(SumsOf(std::vector<Row>(31, RowOf(2, 0.1F))));
  EXPECT_FALSE(drift.interval);
  EXPECT_EQ(drift.more_rows, 1);
  const AuditedDrift none = DriftOf(SumsOf({RowOf(0, 0.0F)}));
  EXPECT_EQ(none.rows, 0);
  EXPECT_TRUE(std::isnan(none.k3));
  EXPECT_EQ(none.more_rows, 32);
}

TEST(AuditTest, EqualLogProbsAreKnown) {
  const AuditedDrift drift =
      DriftOf(SumsOf(std::vector<Row>(32, RowOf(2, 0.0F))));
  EXPECT_EQ(drift.k3, 0.0);
  EXPECT_EQ(drift.interval->high, 0.0);
  EXPECT_EQ(drift.more_rows, 0);
}

TEST(AuditTest, OnlyTokensOfAuditedRowsCount) {
  Row mixed = RowOf(4, 1.0F);
  mixed.mask[1] = 0;
  mixed[kTrainer][1] = std::numeric_limits<float>::quiet_NaN();
  mixed[kTrainer][2] = -std::numeric_limits<float>::infinity();
  Row broken = RowOf(3, 0.0F);
  broken[kTrainer].assign(3, std::numeric_limits<float>::quiet_NaN());
  const std::vector<Row> rows = {broken, mixed, broken, RowOf(2, 1.0F)};
  const OwnedBatch batch(rows, {.dtype = DType::kF32});
  const int64_t audited[] = {1, 3};
  const std::span<const int64_t> span(audited);
  const AuditedDrift drift = DriftOf(SumsOfRows(batch.view(), kTrainer, &span));
  EXPECT_EQ(drift.rows, 2);
  EXPECT_EQ(drift.tokens, 4);
  EXPECT_NEAR(drift.k3, K3(1.0), 1e-6);
}

TEST(AuditTest, PartsAddUpToTheSameBytesInAnyOrder) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> ratio(0.0F, 0.3F);
  std::vector<Row> rows;
  for (int i = 0; i < 60; ++i) {
    rows.push_back(RowOf(static_cast<int>(random() % 40), ratio(random)));
  }
  const AuditedDrift whole = DriftOf(SumsOf(rows));
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(rows.begin(), rows.end(), random);
    AuditSums sums(kAuditNumbers);
    for (size_t begin = 0; begin < rows.size();) {
      const size_t end = std::min(rows.size(), begin + 1 + random() % 20);
      sums = Plus(sums, SumsOf({rows.begin() + begin, rows.begin() + end}));
      begin = end;
    }
    ASSERT_TRUE(AreAuditSums(sums));
    const AuditedDrift parts = DriftOf(sums);
    EXPECT_EQ(std::memcmp(&parts.k3, &whole.k3, sizeof(double)), 0);
    EXPECT_EQ(std::memcmp(&*parts.interval, &*whole.interval,
                          sizeof(*whole.interval)),
              0);
    EXPECT_EQ(parts.more_rows, whole.more_rows);
  }
}

TEST(AuditTest, IntervalsCover) {
  // Rows of a population with skewed drift, and draws of 48 of them.
  // kFewestAuditedRows has figures of real rows.
  std::mt19937_64 random(2);
  std::lognormal_distribution<double> spread(-3.0, 0.35);
  std::uniform_int_distribution<int> length(4, 80);
  std::normal_distribution<double> noise;
  std::vector<Row> population;
  for (int i = 0; i < 2000; ++i) {
    const double of_row = spread(random);
    Row row = RowOf(length(random), 0.0F);
    for (float& o : row[kTrainer]) {
      o += static_cast<float>(of_row * noise(random));
    }
    population.push_back(row);
  }
  const double truth = DriftOf(SumsOf(population)).k3;
  int covered = 0;
  constexpr int kDraws = 300;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<Row> sample;
    for (int i = 0; i < 48; ++i) {
      sample.push_back(population[random() % population.size()]);
    }
    const AuditedDrift drift = DriftOf(SumsOf(sample));
    covered += drift.interval->low <= truth && truth <= drift.interval->high;
  }
  EXPECT_GE(covered, kDraws * 9 / 10);
}

TEST(AuditTest, SumsThatAreNone) {
  const AuditSums sums = SumsOf({RowOf(3, 0.1F)});
  EXPECT_THAT(sums, SizeIs(kAuditNumbers));
  EXPECT_TRUE(AreAuditSums(sums));
  const auto with = [&](size_t i, double x) {
    AuditSums changed = sums;
    changed[i] = x;
    return AreAuditSums(changed);
  };
  EXPECT_FALSE(with(0, -1.0));
  EXPECT_FALSE(with(0, 0.5));
  EXPECT_FALSE(with(0, 4.0));  // more rows than tokens
  EXPECT_FALSE(with(5, std::nan("")));
  // Its square would be infinite, and the rows that are missing no number.
  EXPECT_FALSE(with(2, 1e300));
  EXPECT_FALSE(AreAuditSums(std::vector<double>(33)));
}

}  // namespace
}  // namespace counterweight::kernels::doctor
