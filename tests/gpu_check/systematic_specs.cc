#include "tests/gpu_check/systematic_specs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/testing/loss_specs.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// [0, 1, ..., last] of an enum that counts from 0.
template <class Enum>
std::vector<Enum> UpTo(Enum last) {
  std::vector<Enum> all;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    all.push_back(static_cast<Enum>(i));
  }
  return all;
}

void AddIfValid(std::string name, const CorrectionSpec& spec,
                std::vector<NamedSpec>* to) {
  if (Validate(spec).empty()) to->push_back({std::move(name), spec});
}

// Some of the rows or tokens are beyond it, most are not.
double TypicalBound(const RejectionRule& rule, double spread) {
  const double of_tokens =
      rule.estimator == Estimator::kRatio ? spread : spread * spread;
  return rule.aggregation == Aggregation::kSum ? 6 * of_tokens : of_tokens;
}

RejectionRule TypicalRule(Estimator estimator, Aggregation aggregation,
                          double spread) {
  RejectionRule rule;
  rule.estimator = estimator;
  rule.aggregation = aggregation;
  // Other rules than those of row means are decided within the clamp.
  if (!IsDivergence(estimator)) {
    rule.token_clamp = aggregation == Aggregation::kMean ? 4 * spread : 20.0;
  }
  rule.upper = TypicalBound(rule, spread);
  if (estimator == Estimator::kRatio) rule.lower = -rule.upper;
  return rule;
}

const char* WhereOf(Condition condition) {
  switch (condition) {
    case Condition::kAlways:
      return "";
    case Condition::kNegativeAdvantage:
      return ", A < 0";
    case Condition::kPositiveAdvantage:
      return ", A > 0";
    case Condition::kNonPositiveAdvantage:
      return ", A <= 0";
  }
  return "";
}

}  // namespace

std::vector<NamedSpec> EveryStatistic(double spread) {
  std::vector<NamedSpec> all;
  for (const Estimator estimator : UpTo(Estimator::kLast)) {
    for (const Aggregation aggregation : UpTo(Aggregation::kLast)) {
      for (const Condition condition : UpTo(Condition::kLast)) {
        for (const Effect effect : UpTo(Effect::kZeroWeight)) {
          RejectionRule rule = TypicalRule(estimator, aggregation, spread);
          rule.condition = condition;
          rule.effect = effect;
          const CorrectionSpec spec = WithWeightAndRules(
              {.level = Level::kToken, .bound = Bound::kTruncate, .upper = 2.0},
              {rule});
          AddIfValid("rule " + RuleName(rule) + WhereOf(condition) +
                         (effect == Effect::kDrop ? "" : ", zero weight"),
                     spec, &all);
        }
      }
    }
  }
  return all;
}

std::vector<NamedSpec> EveryWeight(double spread) {
  std::vector<NamedSpec> all;
  for (const Level level : UpTo(Level::kPrefix)) {
    for (const Bound bound : UpTo(Bound::kMask)) {
      for (const RatioSource source : UpTo(RatioSource::kCurrentOld)) {
        for (const bool normalize : {false, true}) {
          WeightSpec weight;
          weight.level = level;
          weight.source = source;
          weight.bound = bound;
          if (bound != Bound::kNone) {
            weight.lower = static_cast<float>(std::exp(-spread));
            weight.upper = static_cast<float>(std::exp(spread));
          }
          weight.normalize = normalize;
          AddIfValid(std::string("weight ") + Name(level) + ", " + Name(bound) +
                         ", " + Name(source) + (normalize ? ", mean 1" : ""),
                     WithWeight(weight), &all);
        }
      }
    }
  }
  return all;
}

std::vector<NamedSpec> EverySurrogate(double spread) {
  std::vector<NamedSpec> all;
  for (const Surrogate surrogate : Surrogates()) {
    for (const LossLevel level : UpTo(LossLevel::kSequenceToken)) {
      LossSpec loss = BusyLoss(surrogate, spread);
      loss.level = level;
      AddIfValid("loss " + Describe(loss), WithLoss(loss), &all);
    }
  }
  for (const KlEstimator estimator : UpTo(KlEstimator::kAbs)) {
    LossSpec loss = BusyLoss(Surrogate::kPpoClip, spread);
    loss.kl.estimator = estimator;
    loss.kl.coefficient = 0.1;
    AddIfValid("loss " + Describe(loss), WithLoss(loss), &all);
  }
  return all;
}

}  // namespace counterweight::kernels
