// RequiredTensors returns exactly the tensors that the spec reads.
#include <gtest/gtest.h>

#include "kernels/corrector.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

uint32_t Roles(std::initializer_list<InputRole> roles) {
  uint32_t bits = 0;
  for (InputRole role : roles) bits |= uint32_t{1} << static_cast<int>(role);
  return bits;
}

constexpr InputRole kRollout = InputRole::kRollout, kOld = InputRole::kOld,
                    kCurrent = InputRole::kCurrent,
                    kAdvantages = InputRole::kAdvantages,
                    kRef = InputRole::kRef;

TEST(RequiredTensors, OfTheDriftSourceAlone) {
  CorrectionSpec spec;
  EXPECT_EQ(RequiredTensors(spec), Roles({kOld, kRollout}));
  spec.drift_source = RatioSource::kCurrentRollout;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kRollout}));
  spec.drift_source = RatioSource::kCurrentOld;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kOld}));
}

TEST(RequiredTensors, OfTheWeightIfThereIsOne) {
  CorrectionSpec spec = WithWeight({.source = RatioSource::kCurrentOld});
  EXPECT_EQ(RequiredTensors(spec), Roles({kOld, kRollout}));
  spec.weight.level = Level::kToken;
  EXPECT_EQ(RequiredTensors(spec), Roles({kOld, kRollout, kCurrent}));
}

TEST(RequiredTensors, OfTheRulesThatCount) {
  CorrectionSpec spec = WithRules({{.upper = 1},
                                   {.source = RatioSource::kCurrentRollout,
                                    .condition = Condition::kNegativeAdvantage,
                                    .upper = 1}});
  EXPECT_EQ(RequiredTensors(spec),
            Roles({kOld, kRollout, kCurrent, kAdvantages}));
  spec.num_rules = 1;
  EXPECT_EQ(RequiredTensors(spec), Roles({kOld, kRollout}));
}

TEST(RequiredTensors, OfTheLoss) {
  CorrectionSpec spec;
  spec.drift_source = RatioSource::kCurrentSelf;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent}));
  spec.loss.surrogate = Surrogate::kReinforce;
  spec.loss.metrics_source = RatioSource::kCurrentSelf;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kAdvantages}))
      << "REINFORCE knows no ratio";
  spec.loss.surrogate = Surrogate::kPpoClip;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kAdvantages, kOld}));
  spec.loss.source = RatioSource::kCurrentRollout;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kAdvantages, kRollout}));
  spec.loss.source = RatioSource::kCurrentSelf;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kAdvantages}));
  spec.loss.metrics_source = RatioSource::kCurrentRollout;
  EXPECT_EQ(RequiredTensors(spec), Roles({kCurrent, kAdvantages, kRollout}));
  spec.loss.kl.estimator = KlEstimator::kK1;
  EXPECT_EQ(RequiredTensors(spec),
            Roles({kCurrent, kAdvantages, kRollout, kRef}));
  spec.loss.kl.source = RatioSource::kCurrentOld;
  EXPECT_EQ(RequiredTensors(spec),
            Roles({kCurrent, kAdvantages, kRollout, kOld}));
}

}  // namespace
}  // namespace counterweight::kernels
