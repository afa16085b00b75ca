// Every value has a unique name.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// Names of the values 0..last.
template <class Enum>
void ExpectDistinctNames(Enum last) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const std::string name = Name(static_cast<Enum>(i));
    EXPECT_FALSE(name.empty());
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(Names, AreDistinct) {
  ExpectDistinctNames(RatioSource::kRefCurrent);
  ExpectDistinctNames(Surrogate::kLast);
  ExpectDistinctNames(Level::kPrefix);
  ExpectDistinctNames(Bound::kMask);
  ExpectDistinctNames(Estimator::kLast);
  ExpectDistinctNames(Aggregation::kLast);
}

TEST(Names, AreThoseOfTheReference) {
  EXPECT_STREQ(Name(RatioSource::kOldRollout), "old_rollout");
  EXPECT_STREQ(Name(Level::kGeometric), "geometric");
}

TEST(Names, OfRulesTellEstimatorAndAggregationApart) {
  std::set<std::string> names;
  for (int e = 0; e <= static_cast<int>(Estimator::kLast); ++e) {
    for (int a = 0; a <= static_cast<int>(Aggregation::kLast); ++a) {
      const RejectionRule rule{.estimator = static_cast<Estimator>(e),
                               .aggregation = static_cast<Aggregation>(a)};
      EXPECT_TRUE(names.insert(RuleName(rule)).second) << RuleName(rule);
    }
  }
  EXPECT_TRUE(names.contains("mean_k3"));
}

TEST(Names, ToStringIsOneLineThatTellsSpecsApart) {
  const std::string busy = ToString(BusySpec());
  EXPECT_EQ(busy.find('\n'), std::string::npos);
  EXPECT_NE(busy, ToString({}));
  CorrectionSpec other = BusySpec();
  other.rules[3].upper = 0.06;
  EXPECT_NE(busy, ToString(other));
}

}  // namespace
}  // namespace counterweight::kernels
