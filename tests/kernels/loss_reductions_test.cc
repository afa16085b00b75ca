// Aggregations by hand: the divisors of a row's sum.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// V = -A at every token, as r is 1.
Row RowOfAdvantages(const std::vector<float>& advantages) {
  return PolicyRow(std::vector<float>(advantages.size(), 0.0f), advantages);
}

// Rows of 3, 1, 0, 1 and 2 tokens. The rule drops tokens with a large
// old/rollout: the last token of row 0, and the only one of row 3.
std::vector<Row> Rows() {
  std::vector<Row> rows = {RowOfAdvantages({1, 2, 4}), RowOfAdvantages({8}),
                           RowOfAdvantages({16, 32}), RowOfAdvantages({64}),
                           RowOfAdvantages({128, 256})};
  rows[2].mask = {0, 0};
  rows[0][InputRole::kRollout] = {0, 0, -9};
  rows[3][InputRole::kRollout] = {-9};
  return rows;
}

// Sums of the rows' kept advantages.
constexpr double kSums[] = {3, 8, 0, 0, 384};

class LossReductions : public EveryBackend {
 protected:
  // `shares` are the factors of the rows' sums.
  void ExpectFactors(const LossReduction& reduction, double count,
                     const std::vector<double>& shares) {
    CorrectionSpec spec = WithRules({{.upper = 1}});
    spec.loss = {.surrogate = Surrogate::kImportanceSampling};
    spec.loss.reduction = reduction;
    OwnedBatch batch(Rows());
    batch.SetGroups({1, 0, 0, 1, -1}, 4);
    batch.SetRowDivisors({5, 0.5, 3, 1, 7});
    const Corrected corrected = Correct(spec, batch);
    double total = 0.0;
    for (size_t i = 0; i < shares.size(); ++i) total -= kSums[i] * shares[i];
    EXPECT_NEAR(corrected.sums().loss.total, total, 1e-6 * -total);
    EXPECT_EQ(corrected.sums().loss.count, count);
    EXPECT_FLOAT_EQ(corrected.gradient[0], static_cast<float>(-shares[0]));
    EXPECT_FLOAT_EQ(corrected.gradient[3], static_cast<float>(-8 * shares[1]));
    EXPECT_FLOAT_EQ(corrected.gradient[7],
                    static_cast<float>(-128 * shares[4]));
  }
};

TEST_P(LossReductions, BatchCounts) {
  ExpectFactors({.count = BatchCount::kOne, .scale = 0.5}, 1,
                std::vector<double>(5, 0.5));
  ExpectFactors({.count = BatchCount::kTokens}, 7,
                std::vector<double>(5, 1.0 / 7));
  ExpectFactors({.count = BatchCount::kKeptTokens}, 5,
                std::vector<double>(5, 0.2));
  // Row 2 has no token.
  ExpectFactors({.count = BatchCount::kRowTokens}, 8,
                std::vector<double>(5, 0.125));
  ExpectFactors({.count = BatchCount::kRows}, 5, std::vector<double>(5, 0.2));
  ExpectFactors({.count = BatchCount::kNonemptyRows, .scale = 2}, 4,
                std::vector<double>(5, 0.5));
  ExpectFactors({.count = BatchCount::kKeptRows}, 3,
                std::vector<double>(5, 1.0 / 3));
  ExpectFactors({.count = BatchCount::kGroups}, 4,
                std::vector<double>(5, 0.25));
}

TEST_P(LossReductions, RowCounts) {
  ExpectFactors({.count = BatchCount::kOne, .row = RowCount::kTokens}, 1,
                {1.0 / 3, 1, 1, 1, 0.5});
  ExpectFactors({.count = BatchCount::kOne, .row = RowCount::kKeptTokens}, 1,
                {0.5, 1, 1, 1, 0.5});
  ExpectFactors({.count = BatchCount::kOne, .row = RowCount::kPerToken}, 1,
                {3, 1, 0, 1, 2});
}

// Group 1 has rows 0 and 3: 4 tokens. Row 4 is in no group.
// ROLL's token-mean: the keep mask leaves the penalty's tokens out alone.
TEST_P(LossReductions, DroppedTokensMayCount) {
  CorrectionSpec spec = WithRules({{.upper = 1}});
  spec.loss = {.surrogate = Surrogate::kImportanceSampling};
  spec.loss.counts_dropped = true;
  spec.loss.kl = {.estimator = KlEstimator::kK1, .coefficient = 3};
  std::vector<Row> rows = Rows();
  for (Row& row : rows)
    row[InputRole::kRef] = std::vector<float>(row.mask.size(), -2.0f);
  const Corrected corrected = Correct(spec, OwnedBatch(rows));
  const LossSums& loss = corrected.sums().loss;
  EXPECT_NEAR(loss.policy, -463.0 / 7, 1e-4);
  EXPECT_NEAR(loss.kl_penalty, 10.0 / 7, 1e-6);
  EXPECT_EQ(loss.slope_rejected, 0);
  EXPECT_EQ(corrected.sums().kept_tokens, 5);
  EXPECT_FLOAT_EQ(corrected.gradient[0], 2.0f / 7);
  EXPECT_FLOAT_EQ(corrected.gradient[2], -4.0f / 7);
  EXPECT_FLOAT_EQ(corrected.gradient[6], -64.0f / 7);
}

TEST_P(LossReductions, GroupsShareTheirTokens) {
  ExpectFactors({.count = BatchCount::kOne, .row = RowCount::kGroupTokens}, 1,
                {0.25, 1, 1, 0.25, 0});
  ExpectFactors(
      {.count = BatchCount::kGroups, .row = RowCount::kGroupTokens, .scale = 3},
      4, {3.0 / 16, 0.75, 0.75, 3.0 / 16, 0});
}

TEST_P(LossReductions, GivenDivisorsReplaceTheRowsTokens) {
  ExpectFactors(
      {.count = BatchCount::kNonemptyRows, .row = RowCount::kGiven, .scale = 2},
      4, {0.1, 1, 1.0 / 6, 0.5, 1.0 / 14});
}

TEST_P(LossReductions, NothingToAverageIsALossOfZero) {
  Row row = RowOfAdvantages({1, 2});
  row.mask = {0, 0};
  for (BatchCount count : {BatchCount::kTokens, BatchCount::kKeptTokens,
                           BatchCount::kNonemptyRows, BatchCount::kKeptRows}) {
    LossSpec loss = {.surrogate = Surrogate::kImportanceSampling};
    loss.reduction.count = count;
    const Corrected corrected = Correct(WithLoss(loss), OwnedBatch({row}));
    EXPECT_EQ(corrected.sums().loss.count, 0);
    EXPECT_EQ(corrected.sums().loss.total, 0);
    EXPECT_EQ(corrected.gradient, std::vector<float>({0, 0}));
  }
}

// SkyRL: terms that are not proportional to A differ from a factor outside.
// Here the penalty of KL_COV, 1 * |l|, does not shrink with the advantage.
TEST_P(LossReductions, PrescaledAdvantagesLeaveAFactorOfOne) {
  LossSpec loss = {.surrogate = Surrogate::kKlCov,
                   .covariance_fraction = 1,
                   .covariance_kl_weight = 1};
  const OwnedBatch batch({PolicyRow({0.5f, 0}, {1, 2})});
  const double r = std::exp(0.5);
  EXPECT_NEAR(Correct(WithLoss(loss), batch).sums().loss.total,
              (-r - 2 + 0.5) / 2, 1e-6);
  loss.prescales_advantages = true;
  EXPECT_NEAR(Correct(WithLoss(loss), batch).sums().loss.total,
              (-r - 2) / 2 + 0.5, 1e-6);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossReductions);

}  // namespace
}  // namespace counterweight::kernels
