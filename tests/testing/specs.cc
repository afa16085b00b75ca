#include "tests/testing/specs.h"

#include <cmath>

#include "kernels/turn_means.h"

namespace counterweight::kernels {
namespace {

template <class Enum>
Enum Any(Random& random, Enum last) {
  return static_cast<Enum>(random.Integer(0, static_cast<int64_t>(last)));
}

// Has statistics of either sign.
bool IsSigned(Estimator estimator) {
  return estimator == Estimator::kRatio || estimator == Estimator::kDifference;
}

// Typical size of a statistic where log ratios have that spread. Rows of random
// batches have tens of tokens.
double TypicalSize(const RejectionRule& rule, double spread) {
  const bool is_signed = IsSigned(rule.estimator);
  double size = is_signed ? spread : spread * spread / 2;
  const bool extreme = rule.aggregation == Aggregation::kMax ||
                       rule.aggregation == Aggregation::kAll;
  if (extreme) size *= is_signed ? 2 : 5;
  if (rule.aggregation == Aggregation::kSum) size *= is_signed ? 5 : 30;
  if (rule.aggregation == Aggregation::kMean && is_signed) size *= 0.3;
  // Probabilities differ by a part of their log ratio.
  return rule.estimator == Estimator::kDifference ? 0.2 * size : size;
}

RejectionRule RandomRule(Random& random, double spread, bool has_weight) {
  RejectionRule rule;
  rule.source = Any(random, RatioSource::kCurrentOld);
  rule.estimator = Any(random, Estimator::kLast);
  rule.aggregation = Any(random, Aggregation::kPrefixMean);
  rule.condition = Any(random, Condition::kLast);
  if (has_weight) rule.effect = Any(random, Effect::kZeroWeight);
  const bool clamps = random.Chance(0.3);
  if (clamps && !IsDivergence(rule.estimator))
    rule.token_clamp = spread * random.Uniform(0.5, 3);
  const bool ratio = rule.estimator == Estimator::kRatio;
  const bool aggregates = rule.aggregation == Aggregation::kSum ||
                          rule.aggregation == Aggregation::kMean;
  const double size = TypicalSize(rule, spread);
  if (ratio && aggregates && random.Chance(0.3))
    rule.aggregate_clamp = size * random.Uniform(0.5, 3);
  const int64_t ends = random.Integer(1, 3);
  if (ends & 1) rule.upper = size * random.Uniform(0.3, 3);
  if (ends & 2)
    rule.lower = size * (IsSigned(rule.estimator) ? random.Uniform(-3, -0.3)
                                                  : random.Uniform(0.01, 0.25));
  return rule;
}

WeightSpec RandomWeight(Random& random, double spread, int num_rules) {
  WeightSpec weight;
  weight.level = Any(random, Level::kPrefix);
  if (weight.level == Level::kNone) return weight;
  weight.source = Any(random, RatioSource::kCurrentOld);
  const double size = weight.level == Level::kSequence ? 5 * spread : spread;
  if (random.Chance(0.5)) weight.token_clamp = spread * random.Uniform(0.5, 3);
  if (random.Chance(0.5))
    weight.aggregate_clamp = size * random.Uniform(0.5, 3);
  weight.bound = Any(random, Bound::kMask);
  if (weight.bound != Bound::kNone) {
    // float32 numbers: a truncated weight is then exactly its bound.
    const int64_t ends = random.Integer(1, 3);
    if (ends & 1)
      weight.upper =
          static_cast<float>(std::exp(size * random.Uniform(0.3, 2)));
    if (ends & 2)
      weight.lower =
          static_cast<float>(std::exp(-size * random.Uniform(0.3, 2)));
  }
  weight.normalize = random.Chance(0.3);
  weight.after_rule = static_cast<int32_t>(random.Integer(0, num_rules));
  weight.counts_empty_rows = weight.normalize && random.Chance(0.3);
  return weight;
}

}  // namespace

CorrectionSpec WithWeight(const WeightSpec& weight) {
  CorrectionSpec spec;
  spec.weight = weight;
  return spec;
}

CorrectionSpec WithRules(std::initializer_list<RejectionRule> rules) {
  CorrectionSpec spec;
  for (const RejectionRule& rule : rules) spec.rules[spec.num_rules++] = rule;
  return spec;
}

CorrectionSpec WithWeightAndRules(const WeightSpec& weight,
                                  std::initializer_list<RejectionRule> rules) {
  CorrectionSpec spec = WithRules(rules);
  spec.weight = weight;
  return spec;
}

CorrectionSpec BusySpec() {
  CorrectionSpec spec = WithWeightAndRules(
      {.level = Level::kToken,
       .token_clamp = 20,
       .bound = Bound::kTruncate,
       .lower = 0.8,
       .upper = 1.2},
      {{.aggregation = Aggregation::kToken, .lower = -0.25, .upper = 0.25},
       {.source = RatioSource::kCurrentRollout,
        .aggregation = Aggregation::kSum,
        .upper = 1.5},
       {.estimator = Estimator::kK3,
        .aggregation = Aggregation::kMean,
        .upper = 0.006},
       {.estimator = Estimator::kK2,
        .aggregation = Aggregation::kMax,
        .condition = Condition::kNegativeAdvantage,
        .upper = 0.05},
       {.source = RatioSource::kCurrentOld,
        .aggregation = Aggregation::kAll,
        .effect = Effect::kZeroWeight,
        .upper = 0.4},
       {.aggregation = Aggregation::kPrefixMean,
        .lower = -0.1,
        .upper = 0.05}});
  spec.peer_sums = true;
  return spec;
}

CorrectionSpec RandomSpec(Random& random, double spread) {
  CorrectionSpec spec;
  spec.num_rules = static_cast<int32_t>(
      random.Chance(0.05) ? kMaxRules : random.Integer(0, 4));
  spec.weight = RandomWeight(random, spread, spec.num_rules);
  for (int r = 0; r < spec.num_rules; ++r)
    spec.rules[r] =
        RandomRule(random, spread, spec.weight.level != Level::kNone);
  spec.evaluation = Any(random, Evaluation::kSequential);
  spec.drift_source = Any(random, RatioSource::kCurrentOld);
  spec.peer_sums = random.Chance(0.3);
  spec.unknown_rollout = random.Chance(0.3);
  return spec;
}

CorrectionSpec WithTurns(Random& random, const CorrectionSpec& of) {
  CorrectionSpec spec = of;
  if (spec.weight.level != Level::kNone && random.Chance(0.5)) {
    spec.weight.level = Level::kTurn;
    spec.weight.after_rule = 0;
    spec.weight.counts_empty_rows = false;
  }
  const bool sequential = spec.evaluation == Evaluation::kSequential;
  for (int r = 0; r < (sequential ? 1 : spec.num_rules); ++r) {
    const RejectionRule before = spec.rules[r];
    RejectionRule& rule = spec.rules[r];
    rule.aggregation = Aggregation::kTurnMean;
    if (rule.estimator == Estimator::kRatio && random.Chance(0.3))
      rule.aggregate_clamp = random.Uniform(0.01, 1);
    if (random.Chance(0.3) || TurnStatistics(spec).size() > kMaxTurnMeans)
      rule = before;
  }
  return Validate(spec).empty() ? spec : of;
}

}  // namespace counterweight::kernels
