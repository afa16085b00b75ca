#include "kernels/walk/make_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "kernels/corrector.h"
#include "kernels/math/exp.h"
#include "kernels/rules/aggregations.h"
#include "kernels/rules/estimators.h"
#include "kernels/surrogates/list.h"
#include "kernels/turn_means.h"

namespace counterweight::kernels {
namespace {

uint32_t Bit(RatioSource source) {
  return uint32_t{1} << static_cast<uint32_t>(source);
}

uint32_t Bit(InputRole role) {
  return uint32_t{1} << static_cast<uint32_t>(role);
}

uint32_t InputsOf(RatioSource source) {
  switch (source) {
    case RatioSource::kOldRollout:
      return Bit(InputRole::kOld) | Bit(InputRole::kRollout);
    case RatioSource::kCurrentRollout:
      return Bit(InputRole::kCurrent) | Bit(InputRole::kRollout);
    case RatioSource::kCurrentOld:
      return Bit(InputRole::kCurrent) | Bit(InputRole::kOld);
    case RatioSource::kCurrentSelf:
      return Bit(InputRole::kCurrent);
    case RatioSource::kRefCurrent:
      return Bit(InputRole::kRef) | Bit(InputRole::kCurrent);
    case RatioSource::kMeans:
      return Bit(InputRole::kMeans) | Bit(InputRole::kZeros);
    case RatioSource::kOtherMeans:
      return Bit(InputRole::kOtherMeans) | Bit(InputRole::kZeros);
  }
  return 0;
}

ClampTerms MakeClamp(double clamp) {
  ClampTerms terms{};
  terms.clamp = static_cast<float>(clamp);
  const ExpTerms high = exp_terms(terms.clamp);
  const ExpTerms low = exp_terms(-terms.clamp);
  terms.exp_low = low.exp;
  terms.exp_high = high.exp;
  terms.expm1_low = low.expm1;
  terms.expm1_high = high.expm1;
  terms.k2 = 0.5f * (terms.clamp * terms.clamp);
  // Both are infinite at infinity, where e^l - 1 - l is not a number.
  const bool bounded = terms.clamp <= std::numeric_limits<float>::max();
  terms.k3_low = bounded ? low.k3 : terms.k2;
  terms.k3_high = bounded ? high.k3 : terms.k2;
  return terms;
}

// The bound that e^l is compared with in place of the clamped ratio.
float HighAbove(const ClampTerms& clamp, float bound) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (clamp.exp_low > bound) return -kInfinity;
  return clamp.exp_high > bound ? bound : kInfinity;
}

float LowFrom(const ClampTerms& clamp, float bound) {
  if (clamp.exp_high < bound) return std::numeric_limits<float>::quiet_NaN();
  return clamp.exp_low < bound ? bound
                               : -std::numeric_limits<float>::infinity();
}

void SetBounds(WeightPlan* plan) {
  const WeightSpec& spec = plan->spec;
  const ClampTerms& clamp = plan->clamp;
  const auto lower = static_cast<float>(spec.lower);
  const auto upper = static_cast<float>(spec.upper);
  plan->high_above = HighAbove(clamp, upper);
  plan->low_from = LowFrom(clamp, lower);
  plan->counts_low_from =
      LowFrom(clamp, static_cast<float>(plan->low_threshold64));
  plan->masks = spec.bound == Bound::kMask;
  const auto end = [&](float exp, float expm1, float* weight, float* excess) {
    const bool bounded = !plan->masks && (exp > upper || exp < lower);
    *weight = bounded ? std::clamp(exp, lower, upper) : exp;
    *excess = bounded ? *weight - 1.0f : expm1;
  };
  end(clamp.exp_low, clamp.expm1_low, &plan->least, &plan->least_excess);
  end(clamp.exp_high, clamp.expm1_high, &plan->most, &plan->most_excess);
  plan->can_vanish = plan->masks || plan->least == 0.0f;
}

// The statistic's own range replaces an absent end, so that the clamped
// statistic of RuleSums is finite where the statistic is.
void SetClampedInterval(RulePlan* plan) {
  const RejectionRule& rule = plan->rule;
  plan->clamped_lower = rule.lower;
  plan->clamped_upper = rule.upper;
  if (!InfoOf(rule.estimator).Has(kEstimatorIsSigned) && rule.lower < 0.0) {
    plan->clamped_lower = 0.0;
  }
}

// After an unconditional rule that drops a row its tokens are alike, unless
// zeroed tokens are counted after it or weights by token wait for it; all other
// sequence rules hit some tokens only.
bool HitsInStatistics(const CorrectionSpec& spec, int r) {
  const RejectionRule& rule = spec.rules[r];
  if (!IsSequenceRule(rule.aggregation)) return false;
  const bool prefix_weight_waits =
      spec.weight.level == Level::kPrefix && r < spec.weight.after_rule;
  bool zeroes_later = false;
  for (int later = r + 1; later < spec.num_rules; ++later) {
    zeroes_later =
        zeroes_later || (spec.evaluation == Evaluation::kSequential &&
                         spec.rules[later].effect == Effect::kZeroWeight);
  }
  return rule.condition != Condition::kAlways ||
         rule.effect == Effect::kZeroWeight || zeroes_later ||
         prefix_weight_waits;
}

// After how many passes over a row's statistics each decision can be used.
void CountPasses(const CorrectionSpec& spec, bool in_order, int32_t* passes) {
  int32_t known[kMaxRules] = {};
  int32_t all = 0;
  const bool sequential = spec.evaluation == Evaluation::kSequential;
  for (int r = 0; r < spec.num_rules; ++r) {
    const RejectionRule& rule = spec.rules[r];
    int32_t start = 0;
    for (int j = 0; sequential && j < r; ++j) {
      if (spec.rules[j].effect == Effect::kDrop) {
        start = std::max(start, known[j]);
      }
    }
    const bool prefix =
        InfoOf(rule.aggregation).Has(kAggregatesPrefix) && !in_order;
    known[r] = start + (prefix || HitsInStatistics(spec, r) ? 1 : 0);
    all = std::max(all, known[r]);
  }
  int32_t start = 0;
  for (int r = 0; r < spec.weight.after_rule; ++r) {
    start = std::max(start, known[r]);
  }
  if (spec.weight.level == Level::kPrefix && !in_order) start += 1;
  *passes = 1 + std::max(all, start);
}

void AddLoss(Plan* plan) {
  LossPlan& loss = plan->loss;
  loss = MakeLossPlan(plan->spec);
  if (!loss.active) return;
  plan->sources |= Bit(loss.spec.metrics_source);
  if (loss.has_ratio) plan->sources |= Bit(loss.spec.source);
  if (!loss.ratio_of_row) plan->output_exps |= Bit(loss.spec.source);
  if (loss.reads_excess) plan->whole_exps |= Bit(loss.spec.source);
  if (!loss.has_kl) return;
  plan->sources |= Bit(loss.spec.kl.source);
  if (loss.spec.kl.estimator == KlEstimator::kK3) {
    plan->output_exps |= Bit(RatioSource::kRefCurrent);
    plan->whole_exps |= Bit(RatioSource::kRefCurrent);
  }
  if (loss.has_kl_ratio) {
    plan->sources |= Bit(loss.kl_ratio_source);
    plan->output_exps |= Bit(loss.kl_ratio_source);
  }
}

// PPO's clip is the only surrogate without a need of its own.
bool RowRatioAlone(const Plan& plan) {
  return (plan.needs & kNeedRowRatio) != 0 &&
         (plan.needs & ~kRowRatioNeeds) == 0 &&
         plan.loss.spec.metrics_source == plan.spec.drift_source;
}

}  // namespace

Plan MakePlan(const CorrectionSpec& given) {
  const CorrectionSpec spec = WithTurnMeans(given);
  Plan plan{};
  plan.spec = spec;
  plan.spec.unknown_rollout =
      spec.unknown_rollout && spec.non_finite == NonFinitePolicy::kReject;
  plan.safety = MakeClamp(kSafetyClamp);
  std::copy(std::begin(kHistogramEdges), std::end(kHistogramEdges),
            plan.histogram_edges);
  plan.sources = Bit(spec.drift_source);
  // Numbers that are not finite are looked for in what means are made of, too.
  plan.inputs = RequiredTensors(spec) | RequiredTensors(given);
  bool needs_row = false;
  for (int r = 0; r < spec.num_rules; ++r) {
    RulePlan& rule = plan.rules[r];
    rule.rule = spec.rules[r];
    rule.clamp = MakeClamp(rule.rule.token_clamp);
    rule.lower = static_cast<float>(rule.rule.lower);
    rule.upper = static_cast<float>(rule.rule.upper);
    const EstimatorInfo estimator = InfoOf(rule.rule.estimator);
    const AggregationInfo aggregation = InfoOf(rule.rule.aggregation);
    rule.is_log_ratio = estimator.Has(kEstimatesLogRatio);
    SetClampedInterval(&rule);
    rule.is_sequence = aggregation.Has(kAggregatesSequence);
    rule.sums = aggregation.Has(kAggregatesSum);
    rule.sums_ratios = rule.sums && rule.is_log_ratio;
    rule.counts = aggregation.Has(kAggregatesCounts);
    rule.is_conditional = rule.rule.condition != Condition::kAlways;
    rule.hits_in_statistics = HitsInStatistics(spec, r);
    rule.prefix = aggregation.Has(kAggregatesPrefix) ? plan.num_prefixes++ : -1;
    plan.sources |= Bit(rule.rule.source) | Bit(given.rules[r].source);
    if (estimator.Has(kEstimatorReadsExp)) {
      plan.statistics_exps |= Bit(rule.rule.source);
      plan.whole_exps |= Bit(rule.rule.source);
      if (!rule.is_sequence) plan.output_exps |= Bit(rule.rule.source);
    }
    needs_row = needs_row || rule.is_sequence;
  }
  WeightPlan& weight = plan.weight;
  weight.spec = spec.weight;
  if (spec.weight.level == Level::kNone) weight.spec.after_rule = 0;
  const double aggregate_clamp = spec.weight.aggregate_clamp;
  weight.clamp =
      MakeClamp(spec.weight.level == Level::kPrefix
                    ? aggregate_clamp
                    : std::min(spec.weight.token_clamp, aggregate_clamp));
  weight.low_threshold64 =
      spec.weight.lower > 0.0 ? spec.weight.lower : 1.0 / spec.weight.upper;
  SetBounds(&weight);
  weight.is_drift = spec.weight.level == Level::kToken &&
                    spec.weight.source == spec.drift_source &&
                    weight.clamp.clamp == plan.safety.clamp;
  weight.lower_log = log64(spec.weight.lower);
  weight.upper_log = log64(spec.weight.upper);
  weight.low_threshold_log = log64(weight.low_threshold64);
  weight.prefix =
      spec.weight.level == Level::kPrefix ? plan.num_prefixes++ : -1;
  if (spec.weight.level != Level::kNone) {
    plan.sources |= Bit(spec.weight.source) | Bit(given.weight.source);
    if (spec.weight.level == Level::kToken) {
      plan.statistics_exps |= Bit(spec.weight.source);
      plan.output_exps |= Bit(spec.weight.source);
    }
  }
  AddLoss(&plan);
  const bool needs_mean =
      spec.weight.normalize && spec.weight.given_mean <= 0.0;
  plan.measures = spec.metrics || needs_mean;
  if (plan.measures) {
    plan.statistics_exps |= Bit(spec.drift_source);
    plan.whole_exps |= Bit(spec.drift_source);
    // The sums of weights.
    if (spec.weight.level == Level::kToken) {
      plan.whole_exps |= Bit(spec.weight.source);
    }
  }
  const bool needs_row_first =
      plan.loss.by_row || IsSequenceLevel(spec.weight.level);
  const bool needs_base = plan.num_prefixes > 0;
  needs_row = needs_row || needs_row_first;
  plan.single_pass = !needs_row && !needs_base;
  plan.in_order_single_pass = !needs_row;
  CountPasses(spec, false, &plan.passes);
  CountPasses(spec, true, &plan.in_order_passes);
  plan.speculates =
      needs_row && plan.passes == 1 && !needs_base && !needs_row_first;
  plan.in_order_speculates =
      needs_row && plan.in_order_passes == 1 && !needs_row_first;
  plan.needs = NeedsOf(plan);
  plan.row_ratio_alone = RowRatioAlone(plan);
  plan.weights_alone = plan.needs == (kNeedTokens | kNeedTokenWeights);
  plan.token_columns = kColumnRules + kNumRuleColumns * spec.num_rules;
  plan.token_extrema = kExtremumRules + spec.num_rules;
  plan.row_columns = kRowRules + kNumRowRuleColumns * spec.num_rules;
  plan.row_extrema = kRowExtremumRules + spec.num_rules;
  return plan;
}

uint32_t RequiredTensors(const CorrectionSpec& spec) {
  uint32_t inputs = InputsOf(spec.drift_source);
  if (spec.weight.level != Level::kNone) inputs |= InputsOf(spec.weight.source);
  for (int r = 0; r < spec.num_rules; ++r) {
    inputs |= InputsOf(spec.rules[r].source);
    if (spec.rules[r].condition != Condition::kAlways) {
      inputs |= Bit(InputRole::kAdvantages);
    }
  }
  const LossSpec& loss = spec.loss;
  if (loss.surrogate == Surrogate::kNone) return inputs;
  inputs |= Bit(InputRole::kAdvantages) | InputsOf(loss.metrics_source);
  if (HasRatio(loss.surrogate)) inputs |= InputsOf(loss.source);
  if (loss.kl.estimator != KlEstimator::kNone) {
    inputs |= InputsOf(loss.kl.source);
    if (loss.kl.gradient_ratio_cap > 0.0) {
      inputs |= InputsOf(RatioSource::kCurrentOld);
    }
    if (loss.kl.has_own_ratio) inputs |= InputsOf(loss.kl.ratio_source);
  }
  return inputs;
}

}  // namespace counterweight::kernels
