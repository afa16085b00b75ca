// Validate names the field of every illegal value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const WeightSpec kTokenWeight{.level = Level::kToken,
                              .bound = Bound::kTruncate,
                              .lower = 0.5,
                              .upper = 2};

TEST(Validate, AcceptsTheEmptySpec) { EXPECT_THAT(FieldsOf({}), IsEmpty()); }

TEST(Validate, AcceptsEveryRandomSpec) {
  Random random(1);
  for (int i = 0; i < 1000; ++i)
    EXPECT_THAT(FieldsOf(RandomSpec(random, 0.1)), IsEmpty());
}

TEST(Validate, NumberOfRules) {
  CorrectionSpec spec;
  spec.num_rules = -1;
  EXPECT_THAT(FieldsOf(spec), ElementsAre(SpecField::kNumRules));
  spec.num_rules = kMaxRules + 1;
  EXPECT_THAT(FieldsOf(spec), ElementsAre(SpecField::kNumRules));
}

TEST(Validate, ClampsArePositive) {
  for (double bad : {0.0, -1.0, double{kNaN}}) {
    WeightSpec weight = kTokenWeight;
    weight.token_clamp = bad;
    EXPECT_THAT(FieldsOf(WithWeight(weight)),
                ElementsAre(SpecField::kWeightTokenClamp));
    weight = kTokenWeight;
    weight.aggregate_clamp = bad;
    EXPECT_THAT(FieldsOf(WithWeight(weight)),
                ElementsAre(SpecField::kWeightAggregateClamp));
    RejectionRule rule{.aggregation = Aggregation::kSum, .upper = 1};
    rule.token_clamp = bad;
    EXPECT_THAT(FieldsOf(WithRules({rule})),
                ElementsAre(SpecField::kRuleTokenClamp));
    rule.token_clamp = 1;
    rule.aggregate_clamp = bad;
    EXPECT_THAT(FieldsOf(WithRules({rule})),
                ElementsAre(SpecField::kRuleAggregateClamp));
  }
}

TEST(Validate, WeightIntervalsAreOrderedRatios) {
  WeightSpec weight = kTokenWeight;
  weight.lower = 3;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightLower));
  weight.lower = -0.5;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightLower));
  weight.lower = kNaN;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightLower));
  // A weight of that size would be infinite, and not 0 at masked positions.
  weight.lower = 1e308;
  weight.upper = kUnbounded;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightLower));
  weight.lower = std::numeric_limits<float>::max();
  EXPECT_THAT(FieldsOf(WithWeight(weight)), IsEmpty());
  weight = kTokenWeight;
  weight.upper = kNaN;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightUpper));
  weight.lower = 0;
  weight.upper = 0;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightUpper));
  weight.lower = weight.upper = 1;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), IsEmpty());
}

TEST(Validate, AnIntervalNeedsABound) {
  WeightSpec weight = kTokenWeight;
  weight.bound = Bound::kNone;
  EXPECT_THAT(FieldsOf(WithWeight(weight)),
              ElementsAre(SpecField::kWeightBound));
}

TEST(Validate, NormalizeNeedsAWeight) {
  EXPECT_THAT(FieldsOf(WithWeight({.normalize = true})),
              ElementsAre(SpecField::kWeightNormalize));
}

TEST(Validate, AfterRuleCountsRulesThatExist) {
  WeightSpec weight{.level = Level::kSequence, .after_rule = 2};
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {{.upper = 1}})),
              ElementsAre(SpecField::kWeightAfterRule));
  weight.after_rule = -1;
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {{.upper = 1}})),
              ElementsAre(SpecField::kWeightAfterRule));
  weight.after_rule = 1;
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {{.upper = 1}})), IsEmpty());
}

TEST(Validate, RuleBoundsAreOrderedNumbers) {
  EXPECT_THAT(FieldsOf(WithRules({{.lower = kNaN}})),
              Contains(SpecField::kRuleLower));
  EXPECT_THAT(FieldsOf(WithRules({{.upper = kNaN}})),
              Contains(SpecField::kRuleUpper));
  EXPECT_THAT(FieldsOf(WithRules({{.upper = 1}, {.lower = 1, .upper = 0.5}})),
              ElementsAre(SpecField::kRuleLower));
  EXPECT_THAT(FieldsOf(WithRules({{.lower = 1, .upper = 1}})), IsEmpty());
}

TEST(Validate, AggregateClampIsForSumsAndMeansOfRatios) {
  for (Estimator estimator :
       {Estimator::kRatio, Estimator::kK2, Estimator::kK3}) {
    for (Aggregation aggregation :
         {Aggregation::kToken, Aggregation::kSum, Aggregation::kMean,
          Aggregation::kMax, Aggregation::kAll, Aggregation::kPrefixMean,
          Aggregation::kTurnMean}) {
      const RejectionRule rule{.estimator = estimator,
                               .aggregation = aggregation,
                               .aggregate_clamp = 20,
                               .upper = 1};
      const bool legal = estimator == Estimator::kRatio &&
                         (aggregation == Aggregation::kSum ||
                          aggregation == Aggregation::kMean ||
                          aggregation == Aggregation::kTurnMean);
      if (legal) {
        EXPECT_THAT(FieldsOf(WithRules({rule})), IsEmpty()) << RuleName(rule);
      } else {
        EXPECT_THAT(FieldsOf(WithRules({rule})),
                    ElementsAre(SpecField::kRuleAggregateClamp))
            << RuleName(rule);
      }
    }
  }
}

TEST(Validate, MeansOverTurnsAreOverTheResponseMask) {
  EXPECT_THAT(FieldsOf(WithWeightAndRules(
                  {.level = Level::kTurn, .after_rule = 1}, {{.upper = 1}})),
              ElementsAre(SpecField::kWeightAfterRule));
  const RejectionRule turn{.aggregation = Aggregation::kTurnMean, .upper = 1};
  CorrectionSpec spec = WithRules({{.upper = 1}, turn});
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.evaluation = Evaluation::kSequential;
  EXPECT_THAT(FieldsOf(spec), ElementsAre(SpecField::kRuleAggregation));
  spec = WithRules({turn, {.upper = 1}});
  spec.evaluation = Evaluation::kSequential;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
}

// The weight's mean is a rule's too; the aggregate clamp is the rule's own.
TEST(Validate, AMethodHasTwoMeansOverTurns) {
  const WeightSpec weight{.level = Level::kTurn, .aggregate_clamp = 5};
  const RejectionRule ratio{.aggregation = Aggregation::kTurnMean, .upper = 1};
  RejectionRule k3 = ratio, clamped = ratio;
  k3.estimator = Estimator::kK3;
  clamped.aggregate_clamp = 2;
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {ratio, k3})), IsEmpty());
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {ratio, k3, ratio})),
              IsEmpty());
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {clamped, k3})),
              ElementsAre(SpecField::kNumRules));
}

TEST(Validate, ZeroWeightNeedsAWeight) {
  EXPECT_THAT(
      FieldsOf(WithRules({{.effect = Effect::kZeroWeight, .upper = 1}})),
      ElementsAre(SpecField::kRuleEffect));
}

TEST(Validate, ARulesFieldComesWithItsIndex) {
  const auto violations =
      Validate(WithRules({{.upper = 1}, {.lower = 1, .upper = 0.5}}));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].rule, 1);
  const auto of_weight = Validate(WithWeight({.normalize = true}));
  ASSERT_EQ(of_weight.size(), 1u);
  EXPECT_EQ(of_weight[0].rule, -1);
}

TEST(Validate, ListsEverythingAtOnce) {
  CorrectionSpec spec = WithWeightAndRules(
      {.level = Level::kToken, .token_clamp = -1, .after_rule = 9},
      {{.token_clamp = 0, .upper = 1}, {.lower = 2, .upper = 1}});
  EXPECT_THAT(FieldsOf(spec),
              ::testing::UnorderedElementsAre(
                  SpecField::kWeightTokenClamp, SpecField::kWeightAfterRule,
                  SpecField::kRuleTokenClamp, SpecField::kRuleLower));
}

}  // namespace
}  // namespace counterweight::kernels
