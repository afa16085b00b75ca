// Validate names the field of every illegal value of a loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/loss_parameters.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<SpecField> FieldsOf(const LossSpec& loss) {
  return FieldsOf(WithLoss(loss));
}

LossSpec Of(Surrogate surrogate) { return BusyLoss(surrogate, 0.2); }

TEST(ValidateLoss, AcceptsEveryBusyAndRandomLoss) {
  for (Surrogate surrogate : Surrogates())
    EXPECT_THAT(FieldsOf(Of(surrogate)), IsEmpty()) << Name(surrogate);
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const LossSpec loss = RandomLoss(random, 0.1, 100);
    EXPECT_THAT(FieldsOf(loss), IsEmpty()) << Describe(loss);
  }
}

TEST(ValidateLoss, ReadsNothingWithoutASurrogate) {
  LossSpec loss;
  loss.clip_low = kNaN;
  loss.kl.coefficient = -1;
  EXPECT_THAT(FieldsOf(loss), IsEmpty());
}

TEST(ValidateLoss, BoundsAreDistances) {
  for (double bad : {-0.1, double{kNaN}}) {
    LossSpec loss = Of(Surrogate::kPpoClip);
    loss.clip_low = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kClipLow)));
    loss = Of(Surrogate::kPpoClip);
    loss.clip_high = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kClipHigh)));
    loss = Of(Surrogate::kPpoClip);
    loss.ratio_cap = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kRatioCap)));
    loss = Of(Surrogate::kPpoClip);
    loss.dual_clip = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kDualClip)));
  }
  LossSpec loss = Of(Surrogate::kPpoClip);
  loss.dual_clip = 1;
  EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kDualClip)));
  loss = Of(Surrogate::kCispo);
  loss.clip_high = -0.8;
  EXPECT_THAT(FieldsOf(loss), IsEmpty()) << "CISPO's cap may be below 1";
  loss.clip_high = -1.1;
  EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kClipHigh)));
}

TEST(ValidateLoss, ShapesOfSurrogates) {
  for (double bad : {0.0, -1.0, double{kNaN}, kUnbounded}) {
    LossSpec loss = Of(Surrogate::kSapo);
    loss.tau_positive = loss.tau_negative = bad;
    EXPECT_THAT(FieldsOf(loss),
                ElementsAre(FieldOf(LossParameter::kTauPositive),
                            FieldOf(LossParameter::kTauNegative)));
    loss = Of(Surrogate::kDro);
    loss.beta = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kBeta)));
  }
  for (double bad : {double{kNaN}, kUnbounded}) {
    LossSpec loss = Of(Surrogate::kVespo);
    loss.k_positive = loss.lambda_negative = bad;
    EXPECT_THAT(FieldsOf(loss),
                ElementsAre(FieldOf(LossParameter::kKPositive),
                            FieldOf(LossParameter::kLambdaNegative)));
  }
  for (double bad : {0.0, -0.1, 1.1, double{kNaN}}) {
    LossSpec loss = Of(Surrogate::kKlCov);
    loss.covariance_fraction = bad;
    EXPECT_THAT(FieldsOf(loss),
                ElementsAre(FieldOf(LossParameter::kCovarianceFraction)));
  }
  LossSpec loss = Of(Surrogate::kClipCov);
  loss.covariance_lower = loss.covariance_upper + 1;
  EXPECT_THAT(FieldsOf(loss),
              ElementsAre(FieldOf(LossParameter::kCovarianceLower)));
}

TEST(ValidateLoss, ClampsAreForRatios) {
  for (Surrogate surrogate : Surrogates()) {
    LossSpec loss = Of(surrogate);
    loss.log_ratio_upper = 20;
    EXPECT_EQ(FieldsOf(loss).empty(), !HasTrait(surrogate, kTraitLogRatio))
        << Name(surrogate);
  }
  LossSpec loss = Of(Surrogate::kPpoClip);
  loss.log_ratio_lower = loss.log_ratio_upper = 0;
  EXPECT_THAT(FieldsOf(loss),
              ElementsAre(FieldOf(LossParameter::kLogRatioClamp)));
}

TEST(ValidateLoss, LevelsAreForRatiosOfWholeSequences) {
  for (Surrogate surrogate : Surrogates()) {
    LossSpec loss = Of(surrogate);
    loss.level = LossLevel::kSequence;
    EXPECT_EQ(FieldsOf(loss).empty(), HasTrait(surrogate, kTraitLevels))
        << Name(surrogate);
  }
}

TEST(ValidateLoss, RatiosAreThoseOfTheCurrentPolicy) {
  for (RatioSource bad : {RatioSource::kOldRollout, RatioSource::kRefCurrent}) {
    LossSpec loss = Of(Surrogate::kPpoClip);
    loss.source = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kLossSource));
    loss = Of(Surrogate::kPpoClip);
    loss.metrics_source = bad;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kLossMetricsSource));
  }
}

TEST(ValidateLoss, WhatARowIsMeantOver) {
  LossSpec loss = Of(Surrogate::kVespo);
  loss.over = TokenSet::kKept;
  EXPECT_FALSE(FieldsOf(loss).empty());
  loss = Of(Surrogate::kGeoMean);
  loss.over = TokenSet::kOriginal;
  EXPECT_FALSE(FieldsOf(loss).empty());
}

TEST(ValidateLoss, PrescaledAdvantagesKnowNoKeptTokens) {
  for (BatchCount count : {BatchCount::kKeptTokens, BatchCount::kKeptRows}) {
    LossSpec loss = Of(Surrogate::kPpoClip);
    loss.prescales_advantages = true;
    loss.reduction.count = count;
    EXPECT_FALSE(FieldsOf(loss).empty());
  }
  LossSpec loss = Of(Surrogate::kPpoClip);
  loss.prescales_advantages = true;
  loss.reduction.row = RowCount::kKeptTokens;
  EXPECT_FALSE(FieldsOf(loss).empty());
}

TEST(ValidateLoss, AveragedAdvantagesAreOfRatiosOfRows) {
  LossSpec loss = Of(Surrogate::kPpoClip);
  loss.averages_advantages = true;
  EXPECT_FALSE(FieldsOf(loss).empty()) << "a ratio for each token";
  loss.level = LossLevel::kSequence;
  EXPECT_TRUE(FieldsOf(loss).empty());
  loss.level = LossLevel::kSequenceToken;
  EXPECT_TRUE(FieldsOf(loss).empty());
  for (bool LossSpec::*other :
       {&LossSpec::prescales_advantages, &LossSpec::counts_padding,
        &LossSpec::measures_padding}) {
    LossSpec both = loss;
    both.*other = true;
    EXPECT_FALSE(FieldsOf(both).empty());
  }
}

TEST(ValidateLoss, Penalties) {
  LossSpec loss = Of(Surrogate::kPpoClip);
  for (double bad : {0.0, -1.0, double{kNaN}}) {
    loss.kl = {
        .estimator = KlEstimator::kK3, .token_clamp = bad, .value_clamp = bad};
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlTokenClamp,
                                            SpecField::kKlValueClamp));
  }
  for (double bad : {-1.0, double{kNaN}, kUnbounded}) {
    loss.kl = {.estimator = KlEstimator::kK3, .coefficient = bad};
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlCoefficient));
  }
  loss.kl = {.estimator = KlEstimator::kK3,
             .straight_through = true,
             .importance_weighted = true};
  EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlImportanceWeighted));
  for (Surrogate surrogate :
       {Surrogate::kReinforce, Surrogate::kCrossEntropy, Surrogate::kGeoMean}) {
    loss = Of(surrogate);
    loss.kl = {.estimator = KlEstimator::kK3, .importance_weighted = true};
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlImportanceWeighted));
    // A ratio of its own needs none of the surrogate.
    loss.kl.has_own_ratio = true;
    EXPECT_THAT(FieldsOf(loss), IsEmpty());
    loss.kl.ratio_source = RatioSource::kOldRollout;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlImportanceWeighted));
  }
  loss = Of(Surrogate::kPpoClip);
  for (const RatioSource source :
       {RatioSource::kOldRollout, RatioSource::kCurrentSelf}) {
    loss.kl = {.estimator = KlEstimator::kK2, .source = source};
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlEstimator));
  }
  loss.kl = {.estimator = KlEstimator::kK3,
             .source = RatioSource::kCurrentRollout};
  EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlEstimator));
  loss.kl.estimator = KlEstimator::kK2;
  EXPECT_THAT(FieldsOf(loss), IsEmpty());
  loss = Of(Surrogate::kGeoMean);
  loss.kl = {.estimator = KlEstimator::kK3};
  loss.kl.has_weight = true;
  EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlImportanceWeighted));
  for (const Surrogate surrogate : {Surrogate::kGeoMean, Surrogate::kVespo}) {
    loss = Of(surrogate);
    loss.counts_dropped = true;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kLossSurrogate));
  }
  loss = Of(Surrogate::kPpoClip);
  loss.counts_dropped = true;
  EXPECT_THAT(FieldsOf(loss), IsEmpty());
  for (bool KlSpec::*flag : {&KlSpec::has_own_ratio, &KlSpec::clamps_product,
                             &KlSpec::ratio_always_moves}) {
    loss.kl = {.estimator = KlEstimator::kK3};
    loss.kl.*flag = true;
    EXPECT_THAT(FieldsOf(loss), ElementsAre(SpecField::kKlImportanceWeighted));
  }
}

// The surrogate's own ratio must not correct the same drift as a weight.
TEST(ValidateLoss, DoubleCorrectionIsRefusedUnlessAskedFor) {
  constexpr SpecField kField = SpecField::kLossAllowDoubleCorrection;
  CorrectionSpec spec =
      WithWeight({.level = Level::kToken, .source = RatioSource::kOldRollout});
  spec.loss = Of(Surrogate::kPpoClip);
  EXPECT_THAT(FieldsOf(spec), IsEmpty()) << "decoupled: old/rollout, then PPO";
  spec.loss.source = RatioSource::kCurrentRollout;
  EXPECT_THAT(FieldsOf(spec), Contains(kField));
  spec.loss.allow_double_correction = true;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.loss = Of(Surrogate::kPpoClip);
  spec.weight.source = RatioSource::kCurrentRollout;
  EXPECT_THAT(FieldsOf(spec), Contains(kField));
  spec.loss.applies_weight = false;
  EXPECT_THAT(FieldsOf(spec), IsEmpty());
  spec.loss = Of(Surrogate::kReinforce);
  EXPECT_THAT(FieldsOf(spec), IsEmpty()) << "REINFORCE corrects nothing";
}

TEST(ValidateLoss, EveryViolationAtOnce) {
  LossSpec loss = Of(Surrogate::kPpoClip);
  loss.clip_low = -1;
  loss.dual_clip = 0;
  loss.reduction.scale = -1;
  loss.kl = {.estimator = KlEstimator::kK1, .coefficient = -1};
  EXPECT_THAT(FieldsOf(loss), ElementsAre(FieldOf(LossParameter::kClipLow),
                                          FieldOf(LossParameter::kDualClip),
                                          SpecField::kLossReductionScale,
                                          SpecField::kKlCoefficient));
}

}  // namespace
}  // namespace counterweight::kernels
