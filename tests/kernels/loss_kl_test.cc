// KL penalties by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

constexpr double kD = 0.5;  // current - ref

class LossKl : public EveryBackend {
 protected:
  // One token with surrogate 0 (no advantage), its ratio exp(`l`).
  Corrected Penalize(const KlSpec& kl, double d, double l = 0.0) {
    Row row = PolicyRow({static_cast<float>(l)}, {0});
    row[InputRole::kRef] = {static_cast<float>(l - d)};
    LossSpec loss = {.surrogate = Surrogate::kImportanceSampling};
    loss.reduction = kPlainSum;
    loss.peer_sums = true;
    loss.kl = kl;
    loss.kl.reduction = kPlainSum;
    return Correct(WithLoss(loss), OwnedBatch({row}));
  }

  void ExpectPenalty(KlSpec kl, double d, double k, double slope) {
    kl.coefficient = 0.25;
    const Corrected corrected = Penalize(kl, d);
    const LossSums& sums = corrected.sums().loss;
    EXPECT_NEAR(sums.kl_penalty, k, 1e-6);
    EXPECT_NEAR(sums.kl, k, 1e-6);
    EXPECT_EQ(sums.kl_tokens, 1);
    EXPECT_NEAR(sums.total, k / 4, 1e-6);
    EXPECT_EQ(sums.policy, 0);
    EXPECT_NEAR(corrected.sums().peers.loss.ref_log_ratio, d, 1e-6);
    EXPECT_NEAR(corrected.gradient[0], slope / 4, 1e-6);
  }
};

const double kK3 = std::exp(-kD) - 1 + kD;

TEST_P(LossKl, Estimators) {
  ExpectPenalty({.estimator = KlEstimator::kK1}, kD, kD, 1);
  ExpectPenalty({.estimator = KlEstimator::kK1}, -kD, -kD, 1);
  ExpectPenalty({.estimator = KlEstimator::kK2}, kD, 0.125, kD);
  ExpectPenalty({.estimator = KlEstimator::kK2}, -kD, 0.125, -kD);
  ExpectPenalty({.estimator = KlEstimator::kK3}, kD, kK3, 1 - std::exp(-kD));
  ExpectPenalty({.estimator = KlEstimator::kK3}, -kD, std::exp(kD) - 1 - kD,
                1 - std::exp(kD));
  ExpectPenalty({.estimator = KlEstimator::kAbs}, kD, kD, 1);
  ExpectPenalty({.estimator = KlEstimator::kAbs}, -kD, kD, -1);
  ExpectPenalty({.estimator = KlEstimator::kAbs}, 0, 0, 0);
}

TEST_P(LossKl, TheTokenClampStopsValueAndGradient) {
  for (KlEstimator estimator : {KlEstimator::kK1, KlEstimator::kK2,
                                KlEstimator::kK3, KlEstimator::kAbs}) {
    const double k = estimator == KlEstimator::kK2   ? 0.03125
                     : estimator == KlEstimator::kK3 ? std::exp(-0.25) - 0.75
                                                     : 0.25;
    ExpectPenalty({.estimator = estimator, .token_clamp = 0.25}, kD, k, 0);
  }
  // At the clamp's end it has a gradient.
  ExpectPenalty({.estimator = KlEstimator::kK2, .token_clamp = kD}, -kD, 0.125,
                -kD);
}

TEST_P(LossKl, TheValueClampStopsValueAndGradient) {
  ExpectPenalty({.estimator = KlEstimator::kK3, .value_clamp = 0.1}, kD, 0.1,
                0);
  ExpectPenalty({.estimator = KlEstimator::kK3, .value_clamp = 0.11}, kD, kK3,
                1 - std::exp(-kD));
  ExpectPenalty({.estimator = KlEstimator::kK1, .value_clamp = 0.25}, -kD,
                -0.25, 0);
}

// verl's "k3+": the gradient of k2 for every value, with and without clamps.
TEST_P(LossKl, StraightThroughHasTheGradientOfK2) {
  for (double clamp : {0.01, 10.0})
    ExpectPenalty({.estimator = KlEstimator::kK3,
                   .token_clamp = 10,
                   .value_clamp = clamp,
                   .straight_through = true},
                  kD, std::min(kK3, clamp), kD);
  ExpectPenalty({.estimator = KlEstimator::kK1, .straight_through = true}, -kD,
                -kD, -kD);
}

// OpenRLHF's unbiased_gradient: min(exp(current - old), cap) d, not clamped.
TEST_P(LossKl, OfTheDivergenceWeighsTheGradientByTheRatio) {
  for (const double l : {0.2, -0.7, 3.0}) {
    const Corrected corrected = Penalize({.estimator = KlEstimator::kK3,
                                          .coefficient = 2,
                                          .value_clamp = 0.01,
                                          .straight_through = true,
                                          .gradient_ratio_cap = 10},
                                         kD, l);
    const double ratio = std::min(std::exp(l), 10.0);
    EXPECT_NEAR(corrected.sums().loss.kl, 0.01, 1e-6);
    EXPECT_NEAR(corrected.gradient[0], 2 * ratio * kD, 1e-5) << l;
  }
}

// k r: its derivative is (k' + k) r.
TEST_P(LossKl, ImportanceWeightedMovesThroughTheRatio) {
  const double r = std::exp(0.2);
  const Corrected corrected = Penalize({.estimator = KlEstimator::kK3,
                                        .coefficient = 2,
                                        .importance_weighted = true},
                                       kD, 0.2);
  EXPECT_NEAR(corrected.sums().loss.kl, kK3 * r, 1e-6);
  EXPECT_NEAR(corrected.sums().loss.total, 2 * kK3 * r, 1e-6);
  EXPECT_NEAR(corrected.gradient[0], 2 * (1 - std::exp(-kD) + kK3) * r, 1e-6);
}

KlSpec ByOwnRatio(KlEstimator estimator, RatioSource source) {
  KlSpec kl = {.estimator = estimator, .importance_weighted = true};
  kl.has_own_ratio = true;
  kl.ratio_source = source;
  return kl;
}

// miles' ratio moves where low_var_kl bounds d, and NeMo RL's does not.
TEST_P(LossKl, AnOwnRatioMovesOrNotWhereTheEstimateIsBounded) {
  for (const bool moves : {false, true}) {
    KlSpec kl = ByOwnRatio(KlEstimator::kK3, RatioSource::kCurrentOld);
    kl.token_clamp = 0.5 * kD;
    kl.ratio_always_moves = moves;
    const double d = 0.5 * kD, r = std::exp(0.2);
    const double k3 = std::exp(-d) - 1 + d;
    kl.coefficient = 1;
    const Corrected corrected = Penalize(kl, kD, 0.2);
    EXPECT_NEAR(corrected.sums().loss.kl, k3 * r, 1e-6);
    EXPECT_NEAR(corrected.gradient[0], moves ? k3 * r : 0.0, 1e-6);
  }
}

// NeMo RL's exp(current - sg(current)): the derivative of the score function,
// k, besides that of the estimator.
TEST_P(LossKl, ARatioToItselfAddsTheScoreFunction) {
  const auto by = [](KlEstimator estimator) {
    return ByOwnRatio(estimator, RatioSource::kCurrentSelf);
  };
  for (const double d : {kD, -kD}) {
    const double k3 = std::exp(-d) - 1 + d;
    ExpectPenalty(by(KlEstimator::kK1), d, d, d + 1);
    ExpectPenalty(by(KlEstimator::kK2), d, 0.125, 0.125 + d);
    ExpectPenalty(by(KlEstimator::kK3), d, k3, d);
  }
  // A bounded d holds the ratio too.
  KlSpec held = by(KlEstimator::kK2);
  held.token_clamp = 0.25;
  ExpectPenalty(held, kD, 0.03125, 0);
  ExpectPenalty(held, 0.25, 0.03125, 0.03125 + 0.25);
}

// The surrogate has the ratio exp(l) of current/old; rollout is 0.3 below old.
TEST_P(LossKl, AnOwnRatioReplacesTheSurrogates) {
  Row row = PolicyRow({0.2f}, {0});
  row[InputRole::kRollout] = {-0.3f};
  row[InputRole::kRef] = {-0.3f};  // d = 0.5
  for (const Surrogate surrogate :
       {Surrogate::kImportanceSampling, Surrogate::kReinforce}) {
    LossSpec loss = {.surrogate = surrogate};
    loss.reduction = loss.kl.reduction = kPlainSum;
    loss.kl = ByOwnRatio(KlEstimator::kK3, RatioSource::kCurrentRollout);
    loss.kl.coefficient = 2;
    loss.kl.reduction = kPlainSum;
    const Corrected corrected = Correct(WithLoss(loss), OwnedBatch({row}));
    const double r = std::exp(0.5);
    EXPECT_NEAR(corrected.sums().loss.kl, kK3 * r, 1e-6);
    EXPECT_NEAR(corrected.gradient[0], 2 * kD * r, 1e-6);
  }
}

// prime-rl's square of current/rollout; the reference is not read.
TEST_P(LossKl, MayBeOfAnotherPolicyThanTheReference) {
  for (const RatioSource source :
       {RatioSource::kCurrentRollout, RatioSource::kCurrentOld}) {
    const bool is_rollout = source == RatioSource::kCurrentRollout;
    for (const float d : {0.5f, -0.5f}) {
      Row row = PolicyRow({0}, {0});
      row[is_rollout ? InputRole::kRollout : InputRole::kOld] = {-d};
      const auto penalize = [&](KlEstimator estimator) {
        LossSpec loss = {.surrogate = Surrogate::kImportanceSampling};
        loss.source = loss.metrics_source = source;
        loss.peer_sums = true;
        loss.kl = {.estimator = estimator, .coefficient = 2};
        loss.kl.source = source;
        loss.reduction = loss.kl.reduction = kPlainSum;
        CorrectionSpec spec = WithLoss(loss);
        spec.drift_source = source;
        return Correct(spec, OwnedBatch({row}));
      };
      Corrected corrected = penalize(KlEstimator::kK2);
      EXPECT_NEAR(corrected.sums().loss.total, 0.25, 1e-6);
      EXPECT_NEAR(corrected.sums().peers.loss.ref_log_ratio, d, 1e-6);
      EXPECT_NEAR(corrected.gradient[0], 2 * d, 1e-6);
      corrected = penalize(KlEstimator::kK1);
      EXPECT_NEAR(corrected.sums().loss.total, 2 * d, 1e-6);
      EXPECT_NEAR(corrected.gradient[0], 2, 1e-6);
      corrected = penalize(KlEstimator::kAbs);
      EXPECT_NEAR(corrected.sums().loss.total, 1, 1e-6);
      EXPECT_NEAR(corrected.gradient[0], d > 0 ? 2 : -2, 1e-6);
    }
  }
}

// slime's low_var_kl with use_unbiased_kl.
TEST_P(LossKl, AClampOfTheProductStopsBoth) {
  KlSpec kl = {.estimator = KlEstimator::kK3,
               .coefficient = 2,
               .value_clamp = 0.1,
               .importance_weighted = true,
               .clamps_product = true};
  // k is 0.107, r 0.82 and 1.22.
  Corrected corrected = Penalize(kl, kD, -0.2);
  EXPECT_NEAR(corrected.sums().loss.kl, kK3 * std::exp(-0.2), 1e-6);
  EXPECT_NEAR(corrected.gradient[0], 2 * kD * std::exp(-0.2), 1e-6);
  corrected = Penalize(kl, kD, 0.2);
  EXPECT_NEAR(corrected.sums().loss.kl, 0.1, 1e-6);
  EXPECT_EQ(corrected.gradient[0], 0);
  kl.estimator = KlEstimator::kK1;
  corrected = Penalize(kl, -kD, 0.2);
  EXPECT_NEAR(corrected.sums().loss.kl, -0.1, 1e-6);
  EXPECT_EQ(corrected.gradient[0], 0);
}

// ms-swift weighs the whole loss of a token.
TEST_P(LossKl, MayHaveTheImportanceWeight) {
  Row row = PolicyRow({0.2f, 0.2f}, {0, 0});
  row[InputRole::kRollout] = {-1, -8};  // weights e and, masked, 0
  row[InputRole::kRef] = {-0.3f, -0.3f};
  CorrectionSpec spec =
      WithWeight({.level = Level::kToken, .bound = Bound::kMask, .upper = 5});
  spec.loss = {.surrogate = Surrogate::kPpoClip};
  spec.loss.kl = {.estimator = KlEstimator::kK3, .coefficient = 2};
  spec.loss.reduction = spec.loss.kl.reduction = kPlainSum;
  for (const bool has_weight : {false, true}) {
    spec.loss.kl.has_weight = has_weight;
    const double first = has_weight ? std::exp(1.0) : 1.0;
    const double second = has_weight ? 0.0 : 1.0;
    const Corrected corrected = Correct(spec, OwnedBatch({row}));
    EXPECT_NEAR(corrected.sums().loss.kl, kK3 * (first + second), 1e-6);
    const double slope = 2 * (1 - std::exp(-kD));
    EXPECT_NEAR(corrected.gradient[0], slope * first, 2e-6);
    EXPECT_NEAR(corrected.gradient[1], slope * second, 1e-6);
  }
}

// Gradients of one token at `d` nats from the reference, in float64.
struct FarGradient {
  KlSpec kl;
  double (*slope)(double d);  // dk/dd
  double (*value)(double d);  // k
};

std::vector<FarGradient> FarGradients() {
  return {{{.estimator = KlEstimator::kK1},
           [](double) { return 1.0; },
           [](double d) { return d; }},
          {{.estimator = KlEstimator::kK2},
           [](double d) { return d; },
           [](double d) { return d * d / 2; }},
          {{.estimator = KlEstimator::kK3},
           [](double d) { return -std::expm1(-d); },
           [](double d) { return std::expm1(-d) + d; }},
          {{.estimator = KlEstimator::kAbs},
           [](double d) { return d > 0 ? 1.0 : -1.0; },
           [](double d) { return std::fabs(d); }}};
}

class FarLossKl : public LossKl {
 protected:
  // Expects infinity where float32 cannot hold the number.
  static void ExpectSlope(float actual, double expected) {
    const auto narrow = static_cast<float>(expected);
    if (std::isinf(narrow)) {
      EXPECT_EQ(actual, narrow);
    } else {
      EXPECT_NEAR(actual, expected, 1e-5 * std::fabs(expected));
    }
  }

  // f(d, l): at both sides of the reference, for ratios exp(l).
  template <class F>
  static void ForEachDistance(F f) {
    for (const double distance : {10, 17, 20, 25, 40, 88, 100, 500}) {
      for (const double d : {distance, -distance}) {
        for (const double l : {0.0, 0.25, -3.0, -120.0}) {
          SCOPED_TRACE(::testing::Message() << "d " << d << ", l " << l);
          f(d, l);
        }
      }
    }
  }
};

TEST_P(FarLossKl, PlainGradients) {
  for (FarGradient far : FarGradients()) {
    far.kl.coefficient = 2;
    ForEachDistance([&](double d, double l) {
      ExpectSlope(Penalize(far.kl, d, l).gradient[0], 2 * far.slope(d));
    });
  }
}

TEST_P(FarLossKl, GradientsStraightThrough) {
  for (FarGradient far : FarGradients()) {
    far.kl.coefficient = 2;
    far.kl.straight_through = true;
    for (const double cap : {0.0, 2.0}) {
      far.kl.gradient_ratio_cap = cap;
      ForEachDistance([&](double d, double l) {
        const double ratio = cap == 0.0 ? 1.0 : std::min(std::exp(l), cap);
        const double slope = static_cast<float>(ratio) * d;
        ExpectSlope(Penalize(far.kl, d, l).gradient[0], 2 * slope);
      });
    }
  }
}

// K3's value and slope are e^-d, and cancel to d.
TEST_P(FarLossKl, ImportanceWeightedGradients) {
  for (FarGradient far : FarGradients()) {
    far.kl.coefficient = 2;
    far.kl.importance_weighted = true;
    ForEachDistance([&](double d, double l) {
      const bool is_k3 = far.kl.estimator == KlEstimator::kK3;
      const double both = is_k3 ? d : far.value(d) + far.slope(d);
      // The ratio is a float32, and denormal or 0 far below 1.
      if (l < -87) {
        EXPECT_NEAR(Penalize(far.kl, d, l).gradient[0], 0, 1e-30);
      } else {
        ExpectSlope(Penalize(far.kl, d, l).gradient[0], 2 * both * std::exp(l));
      }
    });
  }
}

// A ratio that a clamp holds passes no gradient on, not even of an infinite k.
TEST_P(FarLossKl, ImportanceWeightedByAClampedRatio) {
  for (const double d : {-100.0, -40.0, 10.0, 100.0}) {
    Row row = PolicyRow({0.5f}, {0});
    row[InputRole::kRef] = {static_cast<float>(0.5 - d)};
    LossSpec loss = {.surrogate = Surrogate::kImportanceSampling,
                     .log_ratio_upper = 0.25};
    loss.reduction = loss.kl.reduction = kPlainSum;
    loss.kl.estimator = KlEstimator::kK3;
    loss.kl.coefficient = 2;
    loss.kl.importance_weighted = true;
    const Corrected corrected = Correct(WithLoss(loss), OwnedBatch({row}));
    ExpectSlope(corrected.gradient[0], -2 * std::expm1(-d) * std::exp(0.25));
  }
}

// Two tokens, log ratios 0.1 and 0.3: r = exp(0.2) for both.
TEST_P(LossKl, ImportanceWeightedByARowSharesItsGradient) {
  Row row = PolicyRow({0.1f, 0.3f}, {0, 0});
  row[InputRole::kRef] = {-0.4f, 0.3f};  // d = 0.5, 0
  LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                   .level = LossLevel::kSequence};
  loss.reduction = loss.kl.reduction = kPlainSum;
  loss.kl.estimator = KlEstimator::kK3;
  loss.kl.coefficient = 2;
  loss.kl.importance_weighted = true;
  const Corrected corrected = Correct(WithLoss(loss), OwnedBatch({row}));
  const double r = std::exp(0.2), shared = kK3 * r / 2;
  EXPECT_NEAR(corrected.gradient[0], 2 * ((1 - std::exp(-kD)) * r + shared),
              1e-6);
  EXPECT_NEAR(corrected.gradient[1], 2 * shared, 1e-6);
}

// Token 1 is dropped, and has a weight that the penalty ignores.
TEST_P(LossKl, GoesOverKeptOrOriginalTokensWithoutWeights) {
  Row row = PolicyRow({0.1f, 0.9f}, {1, 1});
  row[InputRole::kRollout] = {-1.0f, -1.0f};
  row[InputRole::kRef] = {0.0f, 0.5f};  // d = 0.1, 0.4
  CorrectionSpec spec =
      WithWeightAndRules({.level = Level::kToken},
                         {{.source = RatioSource::kCurrentOld, .upper = 0.5}});
  spec.loss = {.surrogate = Surrogate::kReinforce};
  spec.loss.reduction = kPlainSum;
  spec.loss.kl = {.estimator = KlEstimator::kK2, .coefficient = 1};
  spec.loss.kl.reduction = {.count = BatchCount::kTokens};
  const double e = std::exp(1.0);
  Corrected corrected = Correct(spec, OwnedBatch({row}));
  EXPECT_EQ(corrected.sums().loss.kl_tokens, 1);
  EXPECT_NEAR(corrected.sums().loss.kl_penalty, 0.005 / 2, 1e-7);
  EXPECT_NEAR(corrected.gradient[0], -e + 0.1 / 2, 1e-6);
  EXPECT_EQ(corrected.gradient[1], 0);
  spec.loss.kl.over = TokenSet::kOriginal;
  corrected = Correct(spec, OwnedBatch({row}));
  EXPECT_EQ(corrected.sums().loss.kl_tokens, 2);
  EXPECT_NEAR(corrected.sums().loss.kl_penalty, (0.005 + 0.08) / 2, 1e-7);
  EXPECT_NEAR(corrected.gradient[1], 0.4 / 2, 1e-6);
}

TEST_P(LossKl, ACoefficientOfZeroMeasuresAlone) {
  const Corrected corrected =
      Penalize({.estimator = KlEstimator::kK1, .coefficient = 0}, kD);
  EXPECT_NEAR(corrected.sums().loss.kl, kD, 1e-6);
  EXPECT_EQ(corrected.sums().loss.total, 0);
  EXPECT_EQ(corrected.gradient[0], 0);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossKl);
COUNTERWEIGHT_ON_EVERY_BACKEND(FarLossKl);

}  // namespace
}  // namespace counterweight::kernels
