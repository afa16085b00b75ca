#include "tests/testing/reference_rules.h"

#include <algorithm>
#include <cmath>

namespace counterweight::kernels {
namespace {

double Clamp(double x, double limit) { return std::clamp(x, -limit, limit); }

double Estimate(Estimator estimator, double l) {
  switch (estimator) {
    case Estimator::kRatio:
      return l;
    case Estimator::kK2:
      return l * l / 2;
    case Estimator::kK3:
      return std::expm1(l) - l;
    case Estimator::kBinaryKl:
    case Estimator::kTotalVariation:
    case Estimator::kDifference:
    case Estimator::kReverseK3:
      break;
  }
  return 0.0;
}

double Probability(double log_prob) {
  return std::clamp(std::exp(log_prob), 1e-6, 1.0 - 1e-6);
}

bool Applies(Condition condition, double advantage) {
  switch (condition) {
    case Condition::kAlways:
      return true;
    case Condition::kNegativeAdvantage:
      return advantage < 0;
    case Condition::kPositiveAdvantage:
      return advantage > 0;
    case Condition::kNonPositiveAdvantage:
      return advantage <= 0;
  }
  return false;
}

double Divergence(Estimator estimator, double numerator, double denominator) {
  if (estimator == Estimator::kDifference)
    return std::exp(numerator) - std::exp(denominator);
  if (estimator == Estimator::kReverseK3)
    return Estimate(Estimator::kK3, denominator - numerator);
  const double p = Probability(denominator);
  const double q = Probability(numerator);
  if (estimator == Estimator::kTotalVariation) return std::fabs(p - q);
  return p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q));
}

// Statistics of single tokens, then of the row they belong to.
void FillStatistics(const RejectionRule& rule, const ReferenceRow& row,
                    RuleOutcome& outcome) {
  double sum = 0.0, largest = 0.0;
  int64_t count = 0;
  double sum_of_means = 0.0;
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!outcome.seen[t]) continue;
    const double l = Clamp(row.LogRatio(rule.source, t), rule.token_clamp);
    const SourceRoles roles = RolesOf(rule.source);
    const double statistic =
        IsDivergence(rule.estimator)
            ? Divergence(rule.estimator, row.Value(roles.numerator, t),
                         row.Value(roles.denominator, t))
            : Estimate(rule.estimator, l);
    largest = count == 0 ? statistic : std::max(largest, statistic);
    sum += statistic;
    count += 1;
    outcome.x[t] = statistic;
    if (rule.aggregation == Aggregation::kPrefixMean)
      outcome.x[t] = sum / count;
    sum_of_means += outcome.x[t];
  }
  if (rule.aggregation == Aggregation::kTurnMean) {
    const std::vector<double> own = outcome.x;
    const std::vector<double> means =
        TurnMeansOf(row, [&](int64_t t) { return own[t]; });
    sum_of_means = 0.0;
    for (int64_t t = 0; t < row.size(); ++t) {
      if (!outcome.seen[t]) continue;
      outcome.x[t] = Clamp(means[t], rule.aggregate_clamp);
      sum_of_means += outcome.x[t];
    }
  }
  const double mean = count == 0 ? 0.0 : sum / count;
  switch (rule.aggregation) {
    case Aggregation::kToken:
    case Aggregation::kAll:
      outcome.q = mean;
      return;
    case Aggregation::kPrefixMean:
    case Aggregation::kTurnMean:
      outcome.q = count == 0 ? 0.0 : sum_of_means / count;
      return;
    case Aggregation::kSum:
      outcome.q = Clamp(sum, rule.aggregate_clamp);
      break;
    case Aggregation::kMean:
      outcome.q = Clamp(mean, rule.aggregate_clamp);
      break;
    case Aggregation::kMax:
      outcome.q = largest;
      break;
  }
  outcome.x.assign(row.size(), outcome.q);
}

}  // namespace

bool Margin::Above(double x, double bound) {
  // An absent bound, or an infinite statistic, leaves nothing to doubt.
  if (std::isinf(x) || std::isinf(bound)) return x > bound;
  smallest_distance_ = std::min(smallest_distance_, std::fabs(x - bound));
  const double scale = std::max(std::fabs(x), std::fabs(bound));
  if (scale > 0) smallest_ = std::min(smallest_, std::fabs(x - bound) / scale);
  return x > bound;
}

RuleOutcome ApplyRule(const RejectionRule& rule, const ReferenceRow& row,
                      const Mask& seen, Margin& margin) {
  RuleOutcome outcome;
  outcome.seen = seen;
  outcome.row_seen = std::count(seen.begin(), seen.end(), 1) > 0;
  outcome.x.assign(row.size(), 0.0);
  outcome.above = outcome.below = outcome.fired = Mask(row.size(), 0);
  FillStatistics(rule, row, outcome);

  for (int64_t t = 0; t < row.size(); ++t) {
    if (!seen[t]) continue;
    outcome.above[t] = margin.Above(outcome.x[t], rule.upper);
    outcome.below[t] = margin.Below(outcome.x[t], rule.lower);
  }
  if (rule.aggregation == Aggregation::kAll) {
    // Any token decides for its row; the row's statistic is the mean.
    outcome.row_above =
        std::count(outcome.above.begin(), outcome.above.end(), 1) > 0;
    outcome.row_below =
        std::count(outcome.below.begin(), outcome.below.end(), 1) > 0;
    for (int64_t t = 0; t < row.size(); ++t) {
      outcome.above[t] = seen[t] && outcome.row_above;
      outcome.below[t] = seen[t] && outcome.row_below;
      outcome.x[t] = outcome.q;
    }
  } else if (outcome.row_seen) {
    outcome.row_above = margin.Above(outcome.q, rule.upper);
    outcome.row_below = margin.Below(outcome.q, rule.lower);
  }
  for (int64_t t = 0; t < row.size(); ++t) {
    const bool outside = outcome.above[t] || outcome.below[t];
    const bool applies =
        Applies(rule.condition, row.Value(InputRole::kAdvantages, t));
    outcome.fired[t] = seen[t] && outside && applies;
  }
  return outcome;
}

RowVerdict ApplyRules(const CorrectionSpec& spec, const ReferenceRow& row,
                      Margin& margin) {
  RowVerdict verdict;
  verdict.left_after.push_back(row.counts);
  verdict.zeroed.assign(row.size(), 0);
  for (int r = 0; r < spec.num_rules; ++r) {
    const RejectionRule& rule = spec.rules[r];
    Mask left = verdict.left_after.back();
    const bool sequential = spec.evaluation == Evaluation::kSequential;
    const RuleOutcome outcome =
        ApplyRule(rule, row, sequential ? left : row.counts, margin);
    for (int64_t t = 0; t < row.size(); ++t) {
      if (!outcome.fired[t]) continue;
      if (rule.effect == Effect::kDrop) left[t] = 0;
      if (rule.effect == Effect::kZeroWeight) verdict.zeroed[t] = 1;
    }
    verdict.left_after.push_back(left);
    verdict.rules.push_back(outcome);
  }
  verdict.keep = verdict.left_after.back();
  return verdict;
}

}  // namespace counterweight::kernels
