// Validate names the field of everything that is illegal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> FieldsOf(const CorrectionSpec& spec) {
  std::vector<std::string> fields;
  for (const SpecViolation& violation : Validate(spec)) {
    EXPECT_FALSE(violation.reason.empty()) << violation.field;
    fields.push_back(violation.field);
  }
  return fields;
}

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
  EXPECT_THAT(FieldsOf(spec), ElementsAre("rules"));
  spec.num_rules = kMaxRules + 1;
  EXPECT_THAT(FieldsOf(spec), ElementsAre("rules"));
}

TEST(Validate, ClampsArePositive) {
  for (double bad : {0.0, -1.0, kNaN}) {
    WeightSpec weight = kTokenWeight;
    weight.token_clamp = bad;
    EXPECT_THAT(FieldsOf(WithWeight(weight)),
                ElementsAre("weight.token_clamp"));
    weight = kTokenWeight;
    weight.aggregate_clamp = bad;
    EXPECT_THAT(FieldsOf(WithWeight(weight)),
                ElementsAre("weight.aggregate_clamp"));
    RejectionRule rule{.aggregation = Aggregation::kSum, .upper = 1};
    rule.token_clamp = bad;
    EXPECT_THAT(FieldsOf(WithRules({rule})),
                ElementsAre("rules[0].token_clamp"));
    rule.token_clamp = 1;
    rule.aggregate_clamp = bad;
    EXPECT_THAT(FieldsOf(WithRules({rule})),
                ElementsAre("rules[0].aggregate_clamp"));
  }
}

TEST(Validate, WeightIntervalsAreOrderedRatios) {
  WeightSpec weight = kTokenWeight;
  weight.lower = 3;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.lower"));
  weight.lower = -0.5;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.lower"));
  weight.lower = kNaN;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.lower"));
  // A weight of that size is infinite, and not 0 where it is masked.
  weight.lower = 1e308;
  weight.upper = kUnbounded;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.lower"));
  weight.lower = std::numeric_limits<float>::max();
  EXPECT_THAT(FieldsOf(WithWeight(weight)), IsEmpty());
  weight = kTokenWeight;
  weight.upper = kNaN;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.upper"));
  weight.lower = 0;
  weight.upper = 0;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.upper"));
  weight.lower = weight.upper = 1;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), IsEmpty());
}

TEST(Validate, AnIntervalNeedsABound) {
  WeightSpec weight = kTokenWeight;
  weight.bound = Bound::kNone;
  EXPECT_THAT(FieldsOf(WithWeight(weight)), ElementsAre("weight.bound"));
}

TEST(Validate, NormalizeNeedsAWeight) {
  EXPECT_THAT(FieldsOf(WithWeight({.normalize = true})),
              ElementsAre("weight.normalize"));
}

TEST(Validate, AfterRuleCountsRulesThatExist) {
  WeightSpec weight{.level = Level::kSequence, .after_rule = 2};
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {{.upper = 1}})),
              ElementsAre("weight.after_rule"));
  weight.after_rule = -1;
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {{.upper = 1}})),
              ElementsAre("weight.after_rule"));
  weight.after_rule = 1;
  EXPECT_THAT(FieldsOf(WithWeightAndRules(weight, {{.upper = 1}})), IsEmpty());
}

TEST(Validate, RuleBoundsAreOrderedNumbers) {
  EXPECT_THAT(FieldsOf(WithRules({{.lower = kNaN}})),
              Contains("rules[0].lower"));
  EXPECT_THAT(FieldsOf(WithRules({{.upper = kNaN}})),
              Contains("rules[0].upper"));
  EXPECT_THAT(FieldsOf(WithRules({{.upper = 1}, {.lower = 1, .upper = 0.5}})),
              ElementsAre("rules[1].lower"));
  EXPECT_THAT(FieldsOf(WithRules({{.lower = 1, .upper = 1}})), IsEmpty());
}

TEST(Validate, AggregateClampIsForSumsAndMeansOfRatios) {
  for (Estimator estimator :
       {Estimator::kRatio, Estimator::kK2, Estimator::kK3}) {
    for (Aggregation aggregation :
         {Aggregation::kToken, Aggregation::kSum, Aggregation::kMean,
          Aggregation::kMax, Aggregation::kAll, Aggregation::kPrefixMean}) {
      const RejectionRule rule{.estimator = estimator,
                               .aggregation = aggregation,
                               .aggregate_clamp = 20,
                               .upper = 1};
      const bool legal =
          estimator == Estimator::kRatio && (aggregation == Aggregation::kSum ||
                                             aggregation == Aggregation::kMean);
      if (legal) {
        EXPECT_THAT(FieldsOf(WithRules({rule})), IsEmpty()) << RuleName(rule);
      } else {
        EXPECT_THAT(FieldsOf(WithRules({rule})),
                    ElementsAre("rules[0].aggregate_clamp"))
            << RuleName(rule);
      }
    }
  }
}

TEST(Validate, ZeroWeightNeedsAWeight) {
  EXPECT_THAT(
      FieldsOf(WithRules({{.effect = Effect::kZeroWeight, .upper = 1}})),
      ElementsAre("rules[0].effect"));
}

TEST(Validate, ListsEverythingAtOnce) {
  CorrectionSpec spec = WithWeightAndRules(
      {.level = Level::kToken, .token_clamp = -1, .after_rule = 9},
      {{.token_clamp = 0, .upper = 1}, {.lower = 2, .upper = 1}});
  EXPECT_THAT(FieldsOf(spec), ::testing::UnorderedElementsAre(
                                  "weight.token_clamp", "weight.after_rule",
                                  "rules[0].token_clamp", "rules[1].lower"));
}

}  // namespace
}  // namespace counterweight::kernels
