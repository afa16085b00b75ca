// Every illegal value and combination of a spec, in one place.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/float_bounds.h"
#include "kernels/rules/aggregations.h"
#include "kernels/rules/estimators.h"
#include "kernels/spec.h"
#include "kernels/turn_means.h"
#include "kernels/validate_loss.h"

namespace counterweight::kernels {
namespace {

class Checker {
 public:
  Checker(int rule, std::vector<SpecViolation>* violations)
      : rule_(rule), violations_(violations) {}

  void Require(bool ok, SpecField field, const char* reason) {
    if (!ok) violations_->push_back({field, rule_, reason});
  }

 private:
  const int rule_;
  std::vector<SpecViolation>* const violations_;
};

constexpr double kMaxFloat = std::numeric_limits<float>::max();
constexpr char kClampReason[] =
    "must be > 0 nats as float32, or absent for no clamp";

void CheckWeight(const CorrectionSpec& spec,
                 std::vector<SpecViolation>* violations) {
  const WeightSpec& weight = spec.weight;
  Checker check(-1, violations);
  if (weight.level == Level::kNone) {
    check.Require(!weight.normalize, SpecField::kWeightNormalize,
                  "needs an importance weight to normalize");
    return;
  }
  check.Require(IsAboveZero(weight.token_clamp), SpecField::kWeightTokenClamp,
                kClampReason);
  check.Require(IsAboveZero(weight.aggregate_clamp),
                SpecField::kWeightAggregateClamp, kClampReason);
  // Infinite weights are not even 0 where they are masked.
  if (weight.bound == Bound::kTruncate) {
    check.Require(weight.lower >= 0.0 && weight.lower <= kMaxFloat,
                  SpecField::kWeightLower,
                  "must be a ratio >= 0 within float32's range to truncate");
  } else {
    check.Require(weight.lower >= 0.0 && weight.lower < kUnbounded,
                  SpecField::kWeightLower, "must be a finite ratio >= 0");
  }
  check.Require(IsAboveZero(weight.upper), SpecField::kWeightUpper,
                "must be a ratio > 0 as float32");
  check.Require(std::isnan(weight.lower) || std::isnan(weight.upper) ||
                    weight.lower <= weight.upper,
                SpecField::kWeightLower, "must be <= upper");
  const bool has_interval = weight.lower > 0.0 || weight.upper < kUnbounded;
  check.Require(weight.bound != Bound::kNone || !has_interval,
                SpecField::kWeightBound,
                "NONE takes no interval; use TRUNCATE or MASK with one");
  check.Require(weight.given_mean >= 0.0 && weight.given_mean < kUnbounded,
                SpecField::kWeightGivenMean,
                "must be a finite mean > 0, or 0 for none");
  check.Require(weight.source != RatioSource::kCurrentSelf &&
                    weight.source != RatioSource::kRefCurrent,
                SpecField::kWeightSource,
                "must be OLD_ROLLOUT, CURRENT_ROLLOUT or CURRENT_OLD");
  check.Require(weight.after_rule >= 0 && weight.after_rule <= spec.num_rules,
                SpecField::kWeightAfterRule, "must be in [0, number of rules]");
  check.Require(weight.level != Level::kTurn || weight.after_rule == 0,
                SpecField::kWeightAfterRule,
                "must be 0 with TURN, whose means are over response_mask");
}

void CheckRule(const CorrectionSpec& spec, int r,
               std::vector<SpecViolation>* violations) {
  const RejectionRule& rule = spec.rules[r];
  Checker check(r, violations);
  check.Require(IsAboveZero(rule.token_clamp), SpecField::kRuleTokenClamp,
                kClampReason);
  check.Require(!IsDivergence(rule.estimator) || rule.token_clamp == kUnbounded,
                SpecField::kRuleTokenClamp, "is for RATIO, K2 and K3 only");
  check.Require(IsAboveZero(rule.aggregate_clamp),
                SpecField::kRuleAggregateClamp, kClampReason);
  const AggregationInfo aggregation = InfoOf(rule.aggregation);
  const bool is_of_turns = aggregation.Has(kAggregatesTurn);
  const bool sums_ratios = (aggregation.Has(kAggregatesSum) || is_of_turns) &&
                           InfoOf(rule.estimator).Has(kEstimatesLogRatio);
  check.Require(rule.aggregate_clamp == kUnbounded || sums_ratios,
                SpecField::kRuleAggregateClamp,
                "is for RATIO with SUM, MEAN or TURN_MEAN only");
  check.Require(
      !is_of_turns || r == 0 || spec.evaluation == Evaluation::kParallel,
      SpecField::kRuleAggregation,
      "TURN_MEAN is over response_mask: after another rule it needs "
      "PARALLEL evaluation");
  check.Require(!std::isnan(rule.lower), SpecField::kRuleLower,
                "must not be NaN");
  check.Require(!std::isnan(rule.upper), SpecField::kRuleUpper,
                "must not be NaN");
  check.Require(std::isnan(rule.lower) || std::isnan(rule.upper) ||
                    rule.lower <= rule.upper,
                SpecField::kRuleLower, "must be <= upper");
  check.Require(
      rule.effect != Effect::kZeroWeight || spec.weight.level != Level::kNone,
      SpecField::kRuleEffect, "ZERO_WEIGHT needs an importance weight");
}

}  // namespace

std::vector<SpecViolation> Validate(const CorrectionSpec& spec) {
  std::vector<SpecViolation> violations;
  if (spec.num_rules < 0 || spec.num_rules > kMaxRules) {
    violations.push_back({SpecField::kNumRules, -1,
                          "must be at most " + std::to_string(kMaxRules)});
    return violations;
  }
  CheckWeight(spec, &violations);
  for (int r = 0; r < spec.num_rules; ++r) CheckRule(spec, r, &violations);
  Checker(-1, &violations)
      .Require(TurnStatistics(spec).size() <= kMaxTurnMeans,
               SpecField::kNumRules,
               "take at most two different means over turns, the weight's "
               "among them: by ratio, estimator and clamps");
  ValidateLoss(spec, &violations);
  return violations;
}

}  // namespace counterweight::kernels
