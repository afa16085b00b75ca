// Results of rejection rules, computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/testing/backends.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class KnownRules : public EveryBackend {
 protected:
  // keep_mask of rows without padding, one after the other.
  std::vector<uint8_t> Keep(const RejectionRule& rule,
                            const std::vector<Row>& rows) {
    return Correct(WithRules({rule}), OwnedBatch(rows)).keep_mask;
  }
  using Mask = std::vector<uint8_t>;
};

constexpr Estimator kEstimators[] = {Estimator::kRatio, Estimator::kK2,
                                     Estimator::kK3};

// l = 1: 1, 1/2, e - 2. l = -2: -2, 2, e^-2 + 1.
double At(Estimator estimator, bool one) {
  switch (estimator) {
    case Estimator::kRatio:
      return one ? 1.0 : -2.0;
    case Estimator::kK2:
      return one ? 0.5 : 2.0;
    case Estimator::kK3:
      return one ? 0.7182818284590452 : 1.1353352832366128;
    case Estimator::kBinaryKl:
    case Estimator::kTotalVariation:
    case Estimator::kDifference:
    case Estimator::kReverseK3:
      break;  // not of l alone, or below
  }
  return 0;
}

// Returns a rule with an interval of 1e-3 around x.
RejectionRule Around(Estimator estimator, Aggregation aggregation, double x) {
  return {.estimator = estimator,
          .aggregation = aggregation,
          .lower = x - 1e-3,
          .upper = x + 1e-3};
}

TEST_P(KnownRules, EveryEstimatorOfATokenIsItsFormula) {
  for (Estimator e : kEstimators) {
    SCOPED_TRACE(Name(e));
    EXPECT_EQ(
        Keep(Around(e, Aggregation::kToken, At(e, true)), {RowOf({1, -2})}),
        Mask({1, 0}));
    EXPECT_EQ(
        Keep(Around(e, Aggregation::kToken, At(e, false)), {RowOf({1, -2})}),
        Mask({0, 1}));
  }
}

// Blocks before and after the one with the clamped token add up as if no clamp
// were near, and so does the drift, which is another sum.
TEST_P(KnownRules, AClampInOneBlockCountsInTheWholeRowsSum) {
  RejectionRule rule = Around(Estimator::kRatio, Aggregation::kSum, 3.0);
  rule.token_clamp = 1;
  for (const size_t clamped : {0, 300, 600}) {
    std::vector<float> l(768, 0.0f);
    l[20] += 0.5f;
    l[320] += 0.5f;
    l[620] += 1.0f;
    l[clamped] += 7.0f;
    EXPECT_EQ(Keep(rule, {RowOf(l)}), Mask(768, 1)) << clamped;
    rule.token_clamp = 8;
    EXPECT_EQ(Keep(rule, {RowOf(l)}), Mask(768, 0)) << clamped;
    rule.token_clamp = 1;
  }
}

TEST_P(KnownRules, EveryAggregationOfEveryEstimatorIsItsFormula) {
  Row row = RowOf({1, 99, -2});
  row.mask[1] = 0;
  for (Estimator e : kEstimators) {
    SCOPED_TRACE(Name(e));
    const double x = At(e, true), y = At(e, false);
    const std::vector<std::pair<Aggregation, double>> cases = {
        {Aggregation::kSum, x + y},
        {Aggregation::kMean, (x + y) / 2},
        {Aggregation::kMax, std::max(x, y)}};
    for (const auto& [aggregation, statistic] : cases) {
      SCOPED_TRACE(Name(aggregation));
      EXPECT_EQ(Keep(Around(e, aggregation, statistic), {row}),
                Mask({1, 0, 1}));
      EXPECT_EQ(Keep(Around(e, aggregation, statistic + 0.01), {row}),
                Mask({0, 0, 0}));
    }
    const RejectionRule all{.estimator = e,
                            .aggregation = Aggregation::kAll,
                            .lower = std::min(x, y) - 1e-3,
                            .upper = std::max(x, y) + 1e-3};
    EXPECT_EQ(Keep(all, {row}), Mask({1, 0, 1}));
    EXPECT_EQ(Keep(Around(e, Aggregation::kAll, x), {row}), Mask({0, 0, 0}));
    EXPECT_EQ(Keep(Around(e, Aggregation::kPrefixMean, x), {row}),
              Mask({1, 0, 0}));
    EXPECT_EQ(Keep(Around(e, Aggregation::kPrefixMean, (x + y) / 2), {row}),
              Mask({0, 0, 1}));
  }
}

// Rows end turns, and so do masked positions.
TEST_P(KnownRules, TurnsAreRunsOfTheMask) {
  Row row = RowOf({0.5f, 0.25f, 9.0f, 1.0f, -9.0f, 0.0f});
  row.mask[2] = row.mask[4] = 0;
  const RejectionRule rule{
      .aggregation = Aggregation::kTurnMean, .lower = 0.25, .upper = 0.375};
  EXPECT_EQ(Keep(rule, {row, RowOf({0.375f}), RowOf({0.25f, 0.0f})}),
            Mask({1, 1, 0, 0, 0, 0, 1, 0, 0}));
  const double difference = (std::exp(0.5) - 1.0 + std::exp(0.25) - 1.0) / 2.0;
  EXPECT_EQ(
      Keep(Around(Estimator::kDifference, Aggregation::kTurnMean, difference),
           {row}),
      Mask({1, 1, 0, 0, 0, 0}));
}

// p = exp(rollout) and q = exp(old): 1/2 and 1/4; 1/4 and 1/2; equal; both
// below 1e-6, which they are raised to; p above 1 - 1e-6, q below 1e-6.
TEST_P(KnownRules, DivergencesAreThoseOfTwoBoundedProbabilities) {
  const float half = std::log(0.5f), quarter = std::log(0.25f);
  Row row = RowOf({quarter, half, -1, -40, -20});
  row[InputRole::kRollout] = {half, quarter, -1, -30, -1e-8f};
  const double end = (1 - 2e-6) * std::log((1 - 1e-6) / 1e-6);
  const std::vector<std::pair<Estimator, std::vector<double>>> cases = {
      {Estimator::kBinaryKl, {0.14384103622, 0.13081203594, 0, 0, end}},
      {Estimator::kTotalVariation, {0.25, 0.25, 0, 0, 1 - 2e-6}}};
  for (const auto& [e, expected] : cases) {
    SCOPED_TRACE(Name(e));
    for (const double x : expected) {
      Mask near;
      for (const double y : expected) near.push_back(std::fabs(x - y) < 1e-6);
      RejectionRule rule = Around(e, Aggregation::kToken, x);
      rule.lower = x - 1e-6;
      rule.upper = x + 1e-6;
      EXPECT_EQ(Keep(rule, {row}), near) << x;
    }
    const double mean =
        std::accumulate(expected.begin(), expected.end(), 0.0) / 5;
    EXPECT_EQ(Keep(Around(e, Aggregation::kMean, mean), {row}),
              Mask({1, 1, 1, 1, 1}));
    EXPECT_EQ(Keep(Around(e, Aggregation::kMean, mean + 0.01), {row}),
              Mask({0, 0, 0, 0, 0}));
    EXPECT_EQ(Keep(Around(e, Aggregation::kMax, expected[4]), {row}),
              Mask({1, 1, 1, 1, 1}));
  }
}

// q - p of the same rows, of either sign and not bounded.
TEST_P(KnownRules, TheDifferenceOfProbabilitiesHasASign) {
  const float half = std::log(0.5f), quarter = std::log(0.25f);
  Row row = RowOf({quarter, half, -1, -13, 0});
  row[InputRole::kRollout] = {half, quarter, -1, -12, -20};
  const double expected[] = {-0.25, 0.25, 0, std::exp(-13) - std::exp(-12),
                             1 - std::exp(-20)};
  RejectionRule rule{.estimator = Estimator::kDifference};
  for (const double x : expected) {
    rule.lower = x - 1e-7;
    rule.upper = x + 1e-7;
    Mask near;
    for (const double y : expected) near.push_back(std::fabs(x - y) < 1e-7);
    EXPECT_EQ(Keep(rule, {row}), near) << x;
  }
  const double sum = std::accumulate(expected, expected + 5, 0.0);
  const std::pair<Aggregation, double> cases[] = {{Aggregation::kSum, sum},
                                                  {Aggregation::kMean, sum / 5},
                                                  {Aggregation::kMax, 1.0}};
  for (const auto& [aggregation, x] : cases) {
    rule = Around(Estimator::kDifference, aggregation, x);
    EXPECT_EQ(Keep(rule, {row}), Mask(5, 1)) << x;
    rule = Around(Estimator::kDifference, aggregation, x - 0.01);
    EXPECT_EQ(Keep(rule, {row}), Mask(5, 0)) << x;
  }
  rule = {.estimator = Estimator::kDifference, .lower = 0, .upper = 0};
  EXPECT_EQ(Keep(rule, {row}), Mask({0, 0, 1, 0, 0}));
}

// l = 1: 1/e. l = -2: e^2 - 3. Small: l^2 / 2 - l^3 / 6.
TEST_P(KnownRules, ReverseK3IsOfTheExchangedRatio) {
  const double expected[] = {0.36787944117, 4.38905609893, 4.9998331e-9};
  const Row row = RowOf({1, -2, 1e-4f});
  for (size_t i = 0; i < 3; ++i) {
    const RejectionRule rule{.estimator = Estimator::kReverseK3,
                             .lower = expected[i] * (1 - 1e-6),
                             .upper = expected[i] * (1 + 1e-6)};
    Mask only(3, 0);
    only[i] = 1;
    EXPECT_EQ(Keep(rule, {row}), only) << expected[i];
  }
  const double mean = (expected[0] + expected[1] + expected[2]) / 3;
  EXPECT_EQ(
      Keep(Around(Estimator::kReverseK3, Aggregation::kMean, mean), {row}),
      Mask({1, 1, 1}));
  EXPECT_EQ(Keep(Around(Estimator::kReverseK3, Aggregation::kMax, mean), {row}),
            Mask({0, 0, 0}));
}

TEST_P(KnownRules, EqualityKeeps) {
  const float beyond = std::nextafter(0.5f, 1.0f);
  const RejectionRule rule{.lower = -0.5, .upper = 0.5};
  EXPECT_EQ(Keep(rule, {RowOf({0.5f, beyond, -0.5f, -beyond})}),
            Mask({1, 0, 1, 0}));
  EXPECT_EQ(Keep({.estimator = Estimator::kK2, .upper = 0.125},
                 {RowOf({0.5f, beyond})}),
            Mask({1, 0}));
  EXPECT_EQ(Keep({.aggregation = Aggregation::kSum, .upper = 0.5},
                 {RowOf({0.25f, 0.25f}), RowOf({0.25f, beyond - 0.25f})}),
            Mask({1, 1, 0, 0}));
  EXPECT_EQ(Keep({.aggregation = Aggregation::kMax, .upper = 0.5},
                 {RowOf({0.5f}), RowOf({beyond})}),
            Mask({1, 0}));
  EXPECT_EQ(Keep({.aggregation = Aggregation::kPrefixMean, .upper = 0.5},
                 {RowOf({0.25f, 0.75f, 2.0f})}),
            Mask({1, 1, 0}));
}

TEST_P(KnownRules, ClampsComeBeforeTheEstimatorAndAfterTheAggregation) {
  const Row row = RowOf({1, -2, 0.5f});
  // 0.75 - 0.75 + 0.5
  RejectionRule rule = Around(Estimator::kRatio, Aggregation::kSum, 0.5);
  rule.token_clamp = 0.75;
  EXPECT_EQ(Keep(rule, {row}), Mask({1, 1, 1}));
  // -0.5, clamped
  rule = Around(Estimator::kRatio, Aggregation::kSum, -0.25);
  rule.aggregate_clamp = 0.25;
  EXPECT_EQ(Keep(rule, {row}), Mask({1, 1, 1}));
  // 0.75^2 / 2
  rule = Around(Estimator::kK2, Aggregation::kMax, 0.28125);
  rule.token_clamp = 0.75;
  EXPECT_EQ(Keep(rule, {row}), Mask({1, 1, 1}));
}

TEST_P(KnownRules, EachSourceHasItsOwnRatio) {
  Row row = RowOf({0.5f});
  row[InputRole::kCurrent] = {2.0f};
  const std::pair<RatioSource, double> sources[] = {
      {RatioSource::kOldRollout, 0.5},
      {RatioSource::kCurrentRollout, 2.0},
      {RatioSource::kCurrentOld, 1.5}};
  for (const auto& [source, l] : sources) {
    RejectionRule rule = Around(Estimator::kRatio, Aggregation::kToken, l);
    rule.source = source;
    EXPECT_EQ(Keep(rule, {row}), Mask({1})) << Name(source);
    rule.lower = l + 1e-3;
    rule.upper = kUnbounded;
    EXPECT_EQ(Keep(rule, {row}), Mask({0})) << Name(source);
  }
}

TEST_P(KnownRules, ConditionLimitsWhatFiresToNegativeAdvantages) {
  Row row = RowOf({1, 1, 1, 1});
  row[InputRole::kAdvantages] = {-1.0f, 0.0f, -0.0f, 2.0f};
  RejectionRule rule{.aggregation = Aggregation::kToken,
                     .condition = Condition::kNegativeAdvantage,
                     .upper = 0.5};
  EXPECT_EQ(Keep(rule, {row}), Mask({0, 1, 1, 1}));
  rule.aggregation = Aggregation::kMean;
  EXPECT_EQ(Keep(rule, {row}), Mask({0, 1, 1, 1}));
}

TEST_P(KnownRules, ZeroIsNotPositive) {
  Row row = RowOf({1, 1, 1, 1, 0});
  row[InputRole::kAdvantages] = {-1.0f, 0.0f, -0.0f, 2.0f, -1.0f};
  for (const Aggregation aggregation :
       {Aggregation::kToken, Aggregation::kMax, Aggregation::kPrefixMean}) {
    RejectionRule rule{.aggregation = aggregation, .upper = 0.5};
    const bool hits_last = aggregation != Aggregation::kToken;
    rule.condition = Condition::kPositiveAdvantage;
    EXPECT_EQ(Keep(rule, {row}), Mask({1, 1, 1, 0, 1}));
    rule.condition = Condition::kNonPositiveAdvantage;
    EXPECT_EQ(Keep(rule, {row}),
              hits_last ? Mask({0, 0, 0, 1, 0}) : Mask({0, 0, 0, 1, 1}));
    const Corrected corrected = Correct(WithRules({rule}), OwnedBatch({row}));
    EXPECT_EQ(corrected.sums().rules[0].dropped_tokens, hits_last ? 4 : 3);
  }
}

TEST_P(KnownRules, EmptyRowsAreTouchedByNothing) {
  Row masked = RowOf({5, 6});
  masked.mask = {0, 0};
  // 0 is outside this interval, but there is nothing to drop.
  const RejectionRule rule{.aggregation = Aggregation::kSum, .lower = 1};
  const Corrected corrected =
      Correct(WithRules({rule}), OwnedBatch({RowOf({}), masked, RowOf({2})}));
  EXPECT_EQ(corrected.keep_mask, Mask({0, 0, 1}));
  EXPECT_EQ(corrected.sequence_reasons, std::vector<uint16_t>({0, 0, 0}));
  EXPECT_EQ(corrected.sums().rules[0].seen_sequences, 1);
  EXPECT_EQ(corrected.sums().touched_sequences, 0);
}

TEST_P(KnownRules, ReasonsNameTheRules) {
  const Corrected corrected =
      Correct(WithRules({{.upper = 0.5},
                         {.lower = -0.5},
                         {.aggregation = Aggregation::kMax, .upper = 2}}),
              OwnedBatch({RowOf({1, -1, 0}), RowOf({3, -1})}));
  EXPECT_EQ(corrected.token_reasons, std::vector<uint16_t>({1, 2, 0, 5, 6}));
  EXPECT_EQ(corrected.sequence_reasons, std::vector<uint16_t>({3, 7}));
  EXPECT_EQ(corrected.keep_mask, Mask({0, 0, 1, 0, 0}));
}

TEST_P(KnownRules, FifteenRulesHaveFifteenReasons) {
  CorrectionSpec spec;
  spec.num_rules = kMaxRules;
  for (int r = 0; r < kMaxRules; ++r) spec.rules[r].upper = r + 0.5;
  const Corrected corrected = Correct(spec, OwnedBatch({RowOf({0, 3, 100})}));
  EXPECT_EQ(corrected.token_reasons,
            std::vector<uint16_t>({0, 0x0007, 0x7fff}));
}

TEST_P(KnownRules, ZeroWeightLeavesTheKeepMaskAlone) {
  const Corrected corrected = Correct(
      WithWeightAndRules({.level = Level::kToken},
                         {{.effect = Effect::kZeroWeight, .upper = 0.5}}),
      OwnedBatch({RowOf({1, 0})}));
  EXPECT_EQ(corrected.weights, std::vector<float>({0, 1}));
  EXPECT_EQ(corrected.keep_mask, Mask({1, 1}));
  EXPECT_EQ(corrected.token_reasons, std::vector<uint16_t>({1, 0}));
  EXPECT_EQ(corrected.sums().zero_weight_tokens, 1);
  EXPECT_EQ(corrected.sums().kept_tokens, 2);
}

TEST_P(KnownRules, DroppedTokensKeepTheirWeight) {
  const Corrected corrected = Correct(
      WithWeightAndRules(
          {.level = Level::kToken, .bound = Bound::kTruncate, .upper = 2},
          {{.upper = 0.5}}),
      OwnedBatch({RowOf({1, 0})}));
  EXPECT_EQ(corrected.weights, std::vector<float>({2, 1}));
  EXPECT_EQ(corrected.keep_mask, Mask({0, 1}));
}

COUNTERWEIGHT_ON_EVERY_BACKEND(KnownRules);

}  // namespace
}  // namespace counterweight::kernels
