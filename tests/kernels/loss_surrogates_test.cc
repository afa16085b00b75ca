// Every surrogate's value and gradient for single tokens, computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"

namespace counterweight::kernels {
namespace {

struct Token {
  double current, old;  // probabilities
  float advantage;
  double value, slope;
};

class LossSurrogates : public EveryBackend {
 protected:
  static void ExpectNear(double actual, double expected) {
    EXPECT_NEAR(actual, expected, 1e-6 * (1 + std::fabs(expected)));
  }

  // Each token is a separate batch; the loss is V and the gradient its slope.
  void ExpectTokens(LossSpec loss, const std::vector<Token>& tokens) {
    loss.reduction = kPlainSum;
    for (const Token& token : tokens) {
      SCOPED_TRACE(::testing::Message()
                   << Name(loss.surrogate) << ", " << token.current << " over "
                   << token.old << ", A " << token.advantage);
      Row row = PolicyRow({static_cast<float>(std::log(token.current))},
                          {token.advantage});
      row[InputRole::kOld] = {static_cast<float>(std::log(token.old))};
      const Corrected corrected = Correct(WithLoss(loss), OwnedBatch({row}));
      ExpectNear(corrected.sums().loss.total, token.value);
      ExpectNear(corrected.sums().loss.policy, token.value);
      ExpectNear(corrected.gradient[0], token.slope);
    }
  }
};

TEST_P(LossSurrogates, PpoClip) {
  const LossSpec loss = {
      .surrogate = Surrogate::kPpoClip, .clip_low = 0.2, .clip_high = 0.3};
  ExpectTokens(loss, {{1.1, 1, 2, -2.2, -2.2},
                      {1.5, 1, 2, -2.6, 0},
                      {1.5, 1, -2, 3, 3},
                      {0.5, 1, 2, -1, -1},
                      {0.5, 1, -2, 1.6, 0},
                      {1.5, 1, 0, 0, 0}});
}

TEST_P(LossSurrogates, PpoClipOnItsBoundIsNotClipped) {
  const LossSpec loss = {
      .surrogate = Surrogate::kPpoClip, .clip_low = 0, .clip_high = 0};
  ExpectTokens(loss, {{1, 1, 2, -2, -2}, {1, 1, -2, 2, 2}});
}

TEST_P(LossSurrogates, DualClipCapsWhatNegativeAdvantagesCost) {
  const LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                         .clip_low = 0.2,
                         .clip_high = 0.2,
                         .dual_clip = 3};
  ExpectTokens(loss, {{2.5, 1, -1, 2.5, 2.5},
                      {4, 1, -1, 3, 0},
                      {4, 1, 1, -1.2, 0},
                      {0.5, 1, -1, 0.8, 0}});
}

TEST_P(LossSurrogates, TwoSidedDeltaCapsTheUnclippedBranch) {
  const LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                         .clip_low = 0.2,
                         .clip_high = 0.2,
                         .ratio_cap = 2};
  ExpectTokens(loss,
               {{1.5, 1, -1, 1.5, 1.5}, {3, 1, -1, 2, 0}, {3, 1, 1, -1.2, 0}});
}

// With A > 0 the cap binds, with A < 0 the clipped branch, which is r itself.
TEST_P(LossSurrogates, ACapInsideTheIntervalLeavesTheClippedBranch) {
  const LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                         .clip_low = 0.5,
                         .clip_high = 0.5,
                         .ratio_cap = 1.2};
  ExpectTokens(loss, {{1.4, 1, 1, -1.2, 0}, {1.4, 1, -1, 1.4, 1.4}});
}

TEST_P(LossSurrogates, Cispo) {
  const LossSpec loss = {
      .surrogate = Surrogate::kCispo, .clip_low = 0.2, .clip_high = 0.2};
  ExpectTokens(loss, {{1.5, 1, 2, -2.4 * std::log(1.5), -2.4},
                      {0.5, 1, 1, -0.8 * std::log(0.5), -0.8},
                      {1.1, 1, -1, 1.1 * std::log(1.1), 1.1}});
}

// TRL has only an absolute cap, here 0.2.
TEST_P(LossSurrogates, CispoWithACapBelowOne) {
  const LossSpec loss = {.surrogate = Surrogate::kCispo, .clip_high = -0.8};
  ExpectTokens(loss, {{1.5, 1, 2, -0.4 * std::log(1.5), -0.4},
                      {0.1, 1, 2, -0.2 * std::log(0.1), -0.2}});
}

TEST_P(LossSurrogates, Sapo) {
  const LossSpec loss = {.surrogate = Surrogate::kSapo};
  // sigmoid(0) = 1/2; sigmoid(1) = 0.7310585786, its slope 0.1966119332.
  ExpectTokens(loss, {{1, 1, 1, -2, -1},
                      {1, 1, -1, 2 / 1.05, 1},
                      {2, 1, 1, -2.9242343145, -1.5728954658},
                      {1, 1, 0, 0, 0}});
}

TEST_P(LossSurrogates, Reinforce) {
  const LossSpec loss = {.surrogate = Surrogate::kReinforce};
  ExpectTokens(loss, {{0.25, 0.5, 3, 3 * std::log(4), -3},
                      {0.25, 0.5, -1, -std::log(4), 1}});
}

TEST_P(LossSurrogates, Dro) {
  const LossSpec loss = {.surrogate = Surrogate::kDro, .beta = 0.5};
  const double l = std::log(1.5);
  ExpectTokens(loss, {{1.5, 1, 2, -2 * l + l * l / 4, -2 + l / 2}});
}

TEST_P(LossSurrogates, DppoTv) {
  const LossSpec loss = {
      .surrogate = Surrogate::kDppoTv, .clip_low = 0.15, .clip_high = 0.1};
  ExpectTokens(loss, {{0.6, 0.4, 1, 0, 0},
                      {0.45, 0.4, 2, -2.25, -2.25},
                      {0.2, 0.4, 1, -0.5, -0.5},
                      {0.6, 0.4, -1, 1.5, 1.5},
                      {0.2, 0.4, -1, 0, 0},
                      {0.3, 0.4, -1, 0.75, 0.75}});
}

TEST_P(LossSurrogates, DppoInItsLogProbForm) {
  const LossSpec loss = {.surrogate = Surrogate::kDppoTv,
                         .clip_low = 0.1,
                         .clip_high = 0.1,
                         .ratio_cap = 1.2,
                         .log_prob_form = true};
  ExpectTokens(loss, {{0.6, 0.4, -1, 1.2 * std::log(0.6), 1.2},
                      {0.44, 0.4, 1, -1.1 * std::log(0.44), -1.1},
                      {0.6, 0.4, 1, 0, 0}});
}

// The divergence of 0.6 from 0.4 is 0.2 log(1.5) = 0.0811.
TEST_P(LossSurrogates, DppoKl) {
  LossSpec loss = {
      .surrogate = Surrogate::kDppoKl, .clip_low = 0.09, .clip_high = 0.09};
  ExpectTokens(loss, {{0.6, 0.4, 1, -1.5, -1.5}});
  loss.clip_low = loss.clip_high = 0.08;
  ExpectTokens(loss, {{0.6, 0.4, 1, 0, 0},
                      {0.6, 0.4, -1, 1.5, 1.5},
                      {0.4, 0.6, -3, 0, 0},
                      {0.4, 0.6, 3, -2, -2}});
}

// phi = exp(lambda + k q - lambda e^q).
TEST_P(LossSurrogates, Vespo) {
  const LossSpec loss = {.surrogate = Surrogate::kVespo,
                         .over = TokenSet::kOriginal};
  const double l = std::log(2.0);
  const double up = 4 * std::exp(-3), down = 8 * std::exp(-2);
  ExpectTokens(
      loss,
      {{1, 1, 1, 0, -1}, {2, 1, 1, -up * l, -up}, {2, 1, -1, down * l, down}});
}

TEST_P(LossSurrogates, RolloutIs) {
  const LossSpec loss = {
      .surrogate = Surrogate::kRolloutIs, .clip_low = 0.2, .clip_high = 0.2};
  ExpectTokens(loss, {{1.1, 1, 2, -2.2 * std::log(1.1), -2.2},
                      {1.5, 1, 2, 0, 0},
                      {0.5, 1, 2, 0, 0}});
}

TEST_P(LossSurrogates, RolloutIsOnItsBoundIsOutside) {
  const LossSpec loss = {
      .surrogate = Surrogate::kRolloutIs, .clip_low = 0, .clip_high = 0.2};
  ExpectTokens(loss, {{1, 1, 2, 0, 0}});
}

TEST_P(LossSurrogates, CrossEntropy) {
  const LossSpec loss = {.surrogate = Surrogate::kCrossEntropy};
  ExpectTokens(loss, {{0.25, 0.5, 3, std::log(4), -1},
                      {0.25, 0.5, -3, std::log(4), -1}});
}

TEST_P(LossSurrogates, ImportanceSampling) {
  const LossSpec loss = {.surrogate = Surrogate::kImportanceSampling};
  ExpectTokens(loss, {{1.5, 1, 2, -3, -3}, {0.5, 1, -2, 1, 1}});
}

TEST_P(LossSurrogates, AClampedLogRatioHasNoGradient) {
  const LossSpec loss = {.surrogate = Surrogate::kImportanceSampling,
                         .log_ratio_lower = -0.5,
                         .log_ratio_upper = 0.25};
  ExpectTokens(loss,
               {{2, 1, 1, -std::exp(0.25), 0},
                {0.5, 1, 1, -std::exp(-0.5), 0},
                {1.25, 1, 1, -1.25, -1.25},
                {std::exp(0.25), 1, 1, -std::exp(0.25), -std::exp(0.25)}});
}

// The old log-probs equal the policy's own.
TEST_P(LossSurrogates, RatioOfThePolicyToItselfIsOneWithAGradient) {
  const LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                         .source = RatioSource::kCurrentSelf,
                         .metrics_source = RatioSource::kCurrentSelf,
                         .clip_low = 0.2,
                         .clip_high = 0.2};
  ExpectTokens(loss, {{3, 1, 2, -2, -2}, {3, 1, -2, 2, 2}});
}

// exp(200) exceeds float32. Its product with a zero advantage or gradient is 0.
TEST_P(LossSurrogates, InfiniteRatios) {
  const double current = std::exp(100), old = std::exp(-100);
  const auto expect = [&](const LossSpec& loss, float advantage, double value,
                          double slope) {
    ExpectTokens(loss, {{current, old, advantage, value, slope}});
    ExpectTokens(loss, {{current, old, 0, 0, 0}});
  };
  LossSpec loss = {.clip_low = 0.2, .clip_high = 0.2};
  loss.surrogate = Surrogate::kPpoClip;
  expect(loss, 1, -1.2, 0);
  loss.dual_clip = 3;
  expect(loss, -2, 6, 0);
  loss.dual_clip = LossSpec::kNoBound;
  loss.surrogate = Surrogate::kCispo;
  expect(loss, 2, -2.4 * 100, -2.4);
  loss.surrogate = Surrogate::kRolloutIs;
  expect(loss, 1, 0, 0);
  loss.surrogate = Surrogate::kSapo;
  expect(loss, 1, -4, 0);
  loss.surrogate = Surrogate::kImportanceSampling;
  ExpectTokens(loss, {{current, old, 0, 0, 0}});
  loss.level = LossLevel::kSequence;
  ExpectTokens(loss, {{current, old, 0, 0, 0}});
  loss.level = LossLevel::kToken;
  loss.surrogate = Surrogate::kVespo;
  loss.over = TokenSet::kOriginal;
  expect(loss, 1, 0, 0);
}

// A weight of 0 removes an infinite value.
TEST_P(LossSurrogates, NoWeightOfAnInfiniteValueIsNothing) {
  CorrectionSpec spec = WithLoss({.surrogate = Surrogate::kImportanceSampling,
                                  .allow_double_correction = true});
  spec.loss.reduction = kPlainSum;
  spec.weight = {.level = Level::kToken,
                 .source = RatioSource::kCurrentOld,
                 .bound = Bound::kMask,
                 .upper = 2};
  const Corrected corrected =
      Correct(spec, OwnedBatch({PolicyRow({200.0f, 0.0f}, {-1, 3})}));
  EXPECT_EQ(corrected.weights[0], 0.0f);
  EXPECT_EQ(corrected.sums().loss.total, -3);
  EXPECT_EQ(corrected.gradient, std::vector<float>({0.0f, -3.0f}));
}

// A mean of 1.5 is above the clip with both tokens; alone, the second would
// train. What a rule drops has no part in it.
TEST_P(LossSurrogates, AveragedAdvantagesAreOnePerRow) {
  CorrectionSpec spec = WithLoss({.surrogate = Surrogate::kPpoClip,
                                  .level = LossLevel::kSequence,
                                  .clip_low = 0.25,
                                  .clip_high = 0.25});
  spec.loss.reduction = kPlainSum;
  const OwnedBatch batch({PolicyRow({1.0f, 1.0f}, {4, -1})});
  EXPECT_NEAR(Correct(spec, batch).sums().loss.total, -5 + std::exp(1.0), 1e-5);
  spec.loss.averages_advantages = true;
  const Corrected averaged = Correct(spec, batch);
  EXPECT_EQ(averaged.sums().loss.total, -2 * 1.5 * 1.25);
  EXPECT_EQ(averaged.gradient, std::vector<float>({0.0f, 0.0f}));
  spec.num_rules = 1;
  spec.rules[0] = {.source = RatioSource::kCurrentOld,
                   .condition = Condition::kPositiveAdvantage,
                   .upper = 0.5};
  EXPECT_NEAR(Correct(spec, batch).sums().loss.total, std::exp(1.0), 1e-5);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossSurrogates);

}  // namespace
}  // namespace counterweight::kernels
