// Decisions about statistics that are no number, or infinite, though every
// input is finite: log-probs above 0, and policies far apart.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/reference_check.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// Engines that compute in bfloat16 report up to 0.125.
const std::vector<float>& LogProbs() {
  static const std::vector<float> values = {
      0.125f, 0.03f, 1e-6f,  1.2e-7f, 1e-7f, 6e-8f, 5.9e-8f, 3e-8f,
      1e-9f,  0.0f,  -1e-8f, -1e-4f,  -0.3f, -3.0f, -9.0f,   -80.0f};
  return values;
}

// Some of them, for what is tried with each surrogate or rule.
const std::vector<float>& FewLogProbs() {
  static const std::vector<float> values = {0.125f, 1e-6f, 1.2e-7f, 5.9e-8f,
                                            0.0f,   -0.3f, -3.0f,   -80.0f};
  return values;
}

// One token of every pair of log-probs and of every advantage.
template <class F>
void ForEachToken(const std::vector<float>& log_probs,
                  const std::vector<float>& advantages, F f) {
  for (const float current : log_probs) {
    for (const float denominator : log_probs) {
      for (const float advantage : advantages) {
        SCOPED_TRACE(::testing::Message() << current << " over " << denominator
                                          << ", A " << advantage);
        Row row = PolicyRow({current}, {advantage});
        row[InputRole::kOld] = row[InputRole::kRollout] = {denominator};
        row[InputRole::kRef] = {denominator};
        f(row);
      }
    }
  }
}

// The formulas of two systems, as they compute them in float32.
struct Probabilities {
  explicit Probabilities(const Row& row) {
    const float lp = row[InputRole::kCurrent][0];
    const float lq = row[InputRole::kOld][0];
    p = std::exp(lp);
    q = std::exp(lq);
    kl = q * (lq - lp) +
         (1.0f - q) * std::log((1.0f - q + 1e-8f) / (1.0f - p + 1e-8f));
  }

  float p;
  float q;
  float kl;
};

constexpr float kLow = 0.04f, kHigh = 0.05f;

// verl 0.9.1, core_algos.py: what is proven to be within the bound trains.
bool VerlTrains(Surrogate surrogate, const Probabilities& x, float advantage) {
  if (surrogate == Surrogate::kDppoTv) {
    return advantage > 0 ? x.p - x.q <= kHigh : x.p - x.q >= -kLow;
  }
  return advantage > 0 ? x.kl <= kHigh || x.p <= x.q
                       : x.kl <= kLow || x.p >= x.q;
}

// SkyRL 0.4.0, ppo_utils.py: what is beyond the bound does not.
bool SkyrlTrains(Surrogate surrogate, const Probabilities& x, float advantage) {
  const float d = x.p - x.q;
  if (surrogate == Surrogate::kDppoTv) {
    return !(advantage > 0 && d > kHigh) && !(advantage < 0 && -d > kLow);
  }
  return !(advantage > 0 && d > 0 && x.kl > kHigh) &&
         !(advantage < 0 && d < 0 && x.kl > kLow);
}

class Undefined : public EveryBackend {};

TEST_P(Undefined, DivergencesDecideAsTheirSystemsDo) {
  for (const Surrogate surrogate : {Surrogate::kDppoTv, Surrogate::kDppoKl}) {
    int undefined = 0;
    ForEachToken(LogProbs(), {1.0f, -1.0f}, [&](const Row& row) {
      const float advantage = row[InputRole::kAdvantages][0];
      const Probabilities x(row);
      undefined += std::isnan(x.kl);
      LossSpec loss = {.surrogate = surrogate,
                       .log_ratio_lower = -20,
                       .log_ratio_upper = 20,
                       .clip_low = kLow,
                       .clip_high = kHigh};
      loss.reduction = kPlainSum;
      for (const bool is_verl : {true, false}) {
        loss.log_prob_form = is_verl;
        loss.keeps_undefined_divergence = !is_verl;
        const bool trains = is_verl ? VerlTrains(surrogate, x, advantage)
                                    : SkyrlTrains(surrogate, x, advantage);
        const Corrected corrected = Correct(WithLoss(loss), OwnedBatch({row}));
        const LossSums& sums = corrected.sums().loss;
        EXPECT_EQ(sums.clipped, trains ? 0 : 1) << Name(surrogate) << is_verl;
        // Beyond its clamp a ratio has no gradient.
        if (trains && !is_verl && std::fabs(std::log(x.p / x.q)) > 19) continue;
        EXPECT_EQ(corrected.gradient[0] != 0, trains) << is_verl;
      }
    });
    EXPECT_GT(undefined, 50);
  }
}

// Known answers: old -3, a bound of 0.05. The divergence has a logarithm of a
// negative number.
TEST_P(Undefined, AProbabilityAboveOneDoesNotTrain) {
  for (const float current : {1e-7f, 0.03f}) {
    for (const float advantage : {1.0f, -1.0f}) {
      // A > 0 pushes up against the bound, A < 0 down.
      Row row = PolicyRow({advantage > 0 ? current : -3.0f}, {advantage});
      row[InputRole::kOld] = {advantage > 0 ? -3.0f : current};
      LossSpec loss = {.surrogate = Surrogate::kDppoKl,
                       .clip_low = 0.05,
                       .clip_high = 0.05,
                       .ratio_cap = 3,
                       .log_prob_form = true};
      loss.reduction = kPlainSum;
      const Corrected dropped = Correct(WithLoss(loss), OwnedBatch({row}));
      EXPECT_EQ(dropped.sums().loss.total, 0);
      EXPECT_EQ(dropped.gradient[0], 0);
      EXPECT_EQ(dropped.sums().loss.clipped, 1);
      loss.keeps_undefined_divergence = true;
      const Corrected kept = Correct(WithLoss(loss), OwnedBatch({row}));
      const double gap = 3.0 + current;
      const double r = advantage > 0 ? 3.0 : std::exp(-gap);
      EXPECT_NEAR(kept.gradient[0], -advantage * r, 1e-6);
      EXPECT_EQ(kept.sums().loss.clipped, 0);
    }
  }
}

TEST_P(Undefined, EverySurrogateDecidesAsTheReference) {
  int compared = 0, cases = 0;
  for (const Surrogate surrogate : Surrogates()) {
    SCOPED_TRACE(Name(surrogate));
    const bool is_dppo = HasTrait(surrogate, kTraitDivergence);
    for (const bool keeps : {false, true}) {
      if (keeps && !is_dppo) continue;
      CorrectionSpec spec = WithLoss(BusyLoss(surrogate, 0.1));
      spec.loss.keeps_undefined_divergence = keeps;
      spec.loss.reduction = kPlainSum;
      // At ratios near 1 the penalty's slope does not cancel A's.
      if (surrogate == Surrogate::kKlCov) spec.loss.covariance_kl_weight = 0.5;
      ForEachToken(FewLogProbs(), {1.0f, -1.0f, 0.0f}, [&](const Row& row) {
        const ReferenceCase c{.spec = spec, .rows = {row}, .layout = {}};
        ++cases;
        compared +=
            CheckAgainstReference(c, {corrector_}) == Verdict::kCompared;
      });
    }
  }
  EXPECT_GT(compared, 0.8 * cases);
}

std::vector<RejectionRule> Rules() {
  std::vector<RejectionRule> rules;
  for (int e = 0; e <= static_cast<int>(Estimator::kLast); ++e) {
    for (int a = 0; a <= static_cast<int>(Aggregation::kLast); ++a) {
      RejectionRule rule;
      rule.source = RatioSource::kCurrentOld;
      rule.estimator = static_cast<Estimator>(e);
      rule.aggregation = static_cast<Aggregation>(a);
      rule.upper = 0.11;
      if (rule.estimator == Estimator::kRatio) rule.lower = -0.11;
      rules.push_back(rule);
    }
  }
  return rules;
}

TEST_P(Undefined, EveryRuleDecidesAsTheReference) {
  int compared = 0, cases = 0;
  for (const RejectionRule& rule : Rules()) {
    SCOPED_TRACE(RuleName(rule));
    const CorrectionSpec spec = WithRules({rule});
    ForEachToken(FewLogProbs(), {1.0f}, [&](const Row& row) {
      const ReferenceCase c{.spec = spec, .rows = {row}, .layout = {}};
      ++cases;
      compared += CheckAgainstReference(c, {corrector_}) == Verdict::kCompared;
    });
  }
  EXPECT_GT(compared, 0.8 * cases);
}

// Beyond 88.7 nats the ratio of one token is infinite in float32.
TEST_P(Undefined, WhatIsInfiniteIsOutsideEveryFiniteBound) {
  for (RejectionRule rule : Rules()) {
    SCOPED_TRACE(RuleName(rule));
    if (IsDivergence(rule.estimator)) continue;
    for (const float gap : {90.0f, 600.0f, 1e20f}) {
      for (const bool is_bounded : {true, false}) {
        rule.upper = is_bounded ? 50.0 : kUnbounded;
        rule.lower = -kUnbounded;
        Row row = RowOf({0.0f, 0.0f, 0.0f});
        row[InputRole::kCurrent] = {gap, gap, gap};
        row[InputRole::kOld] = {0.0f, 0.0f, 0.0f};
        const Corrected corrected =
            Correct(WithRules({rule}), OwnedBatch({row}));
        EXPECT_EQ(corrected.sums().kept_tokens, is_bounded ? 0 : 3) << gap;
        EXPECT_EQ(corrected.sums().rules[0].tokens_high, is_bounded ? 3 : 0);
      }
    }
  }
}

TEST_P(Undefined, InfiniteRatiosHaveTheWeightOfTheirBound) {
  for (const Level level :
       {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
    for (const float gap : {90.0f, 600.0f, -600.0f}) {
      const OwnedBatch batch({RowOf({gap, gap, gap})});
      WeightSpec weight = {.level = level, .lower = 0.25, .upper = 2};
      weight.bound = Bound::kTruncate;
      EXPECT_EQ(Correct(WithWeight(weight), batch).weights,
                std::vector<float>(3, gap > 0 ? 2.0f : 0.25f));
      weight.bound = Bound::kMask;
      const Corrected masked = Correct(WithWeight(weight), batch);
      EXPECT_EQ(masked.weights, std::vector<float>(3, 0.0f));
      EXPECT_EQ(masked.sums().zero_weight_tokens, 3);
      EXPECT_EQ(gap > 0 ? masked.sums().weight.tokens_high
                        : masked.sums().weight.tokens_low,
                3);
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Undefined);

}  // namespace
}  // namespace counterweight::kernels
