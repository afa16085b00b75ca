#include "kernels/spec.h"

#include <cstdio>
#include <string>

#include "kernels/rules/aggregations.h"
#include "kernels/rules/estimators.h"
#include "kernels/surrogates/list.h"

namespace counterweight::kernels {
namespace {

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", x);
  return text;
}

std::string ToString(const WeightSpec& weight) {
  if (weight.level == Level::kNone) return "weight(none)";
  std::string text = std::string("weight(") + Name(weight.level) + " of " +
                     Name(weight.source) + ", " + Name(weight.bound) + " [" +
                     Number(weight.lower) + ", " + Number(weight.upper) +
                     "], clamps " + Number(weight.token_clamp) + " and " +
                     Number(weight.aggregate_clamp);
  if (weight.normalize) text += ", normalized";
  if (weight.after_rule > 0) {
    text += ", after rule " + std::to_string(weight.after_rule);
  }
  return text + ")";
}

const char* ConditionText(Condition condition) {
  switch (condition) {
    case Condition::kAlways:
      return "";
    case Condition::kNegativeAdvantage:
      return ", where A < 0";
    case Condition::kPositiveAdvantage:
      return ", where A > 0";
    case Condition::kNonPositiveAdvantage:
      return ", where A <= 0";
  }
  return "";
}

std::string ToString(const RejectionRule& rule) {
  std::string text = "rule(" + RuleName(rule) + " of " + Name(rule.source) +
                     " in [" + Number(rule.lower) + ", " + Number(rule.upper) +
                     "], clamps " + Number(rule.token_clamp) + " and " +
                     Number(rule.aggregate_clamp);
  text += ConditionText(rule.condition);
  if (rule.effect == Effect::kZeroWeight) text += ", zeroes the weight";
  return text + ")";
}

}  // namespace

const char* Name(RatioSource source) {
  switch (source) {
    case RatioSource::kOldRollout:
      return "old_rollout";
    case RatioSource::kCurrentRollout:
      return "current_rollout";
    case RatioSource::kCurrentOld:
      return "current_old";
    case RatioSource::kCurrentSelf:
      return "current_self";
    case RatioSource::kRefCurrent:
      return "ref_current";
    case RatioSource::kMeans:
      return "means";
    case RatioSource::kOtherMeans:
      return "other_means";
  }
  return "";
}

const char* Name(Level level) {
  switch (level) {
    case Level::kNone:
      return "none";
    case Level::kToken:
      return "token";
    case Level::kSequence:
      return "sequence";
    case Level::kGeometric:
      return "geometric";
    case Level::kPrefix:
      return "prefix";
    case Level::kTurn:
      return "turn";
  }
  return "";
}

const char* Name(Bound bound) {
  switch (bound) {
    case Bound::kNone:
      return "none";
    case Bound::kTruncate:
      return "truncate";
    case Bound::kMask:
      return "mask";
  }
  return "";
}

const char* Name(Estimator estimator) { return InfoOf(estimator).name; }

const char* Name(Aggregation aggregation) { return InfoOf(aggregation).name; }

const char* Name(Surrogate surrogate) { return InfoOf(surrogate).name; }

bool HasRatio(Surrogate surrogate) {
  return InfoOf(surrogate).Has(kTraitRatio);
}

bool IsDivergence(Estimator estimator) {
  return InfoOf(estimator).Has(kEstimatesDivergence);
}

bool IsSequenceRule(Aggregation aggregation) {
  return InfoOf(aggregation).Has(kAggregatesSequence);
}

std::string RuleName(const RejectionRule& rule) {
  return std::string(Name(rule.aggregation)) + "_" + Name(rule.estimator);
}

std::string ToString(const CorrectionSpec& spec) {
  std::string text = ToString(spec.weight);
  for (int r = 0; r < spec.num_rules; ++r) {
    text += ", " + ToString(spec.rules[r]);
  }
  if (spec.num_rules > 1) {
    text += spec.evaluation == Evaluation::kSequential ? ", sequential"
                                                       : ", parallel";
  }
  return text + ", drift of " + Name(spec.drift_source);
}

}  // namespace counterweight::kernels
