#include "kernels/methods/building_blocks.h"

#include "kernels/log_ratio.h"
#include "kernels/sums.h"

namespace counterweight::kernels::methods {
namespace {

CorrectionSpec WithWeight(CorrectionSpec spec, Level level, Bound bound,
                          double lower, double upper) {
  spec.weight.source = spec.drift_source;
  spec.weight.level = level;
  spec.weight.bound = bound;
  spec.weight.lower = lower;
  spec.weight.upper = upper;
  return spec;
}

}  // namespace

std::vector<Method> Join(std::initializer_list<std::vector<Method>> families) {
  std::vector<Method> all;
  for (const std::vector<Method>& family : families) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

CorrectionSpec Drift(RatioSource source) {
  CorrectionSpec spec;
  spec.drift_source = source;
  return spec;
}

CorrectionSpec WithRule(CorrectionSpec spec, const RejectionRule& rule) {
  spec.rules[spec.num_rules] = rule;
  spec.rules[spec.num_rules].source = spec.drift_source;
  ++spec.num_rules;
  return spec;
}

CorrectionSpec TokenTis(RatioSource source, double upper) {
  CorrectionSpec spec =
      WithWeight(Drift(source), Level::kToken, Bound::kTruncate, 0.0, upper);
  spec.weight.token_clamp = kSafetyClamp;
  return spec;
}

CorrectionSpec SequenceTis(RatioSource source, double upper) {
  CorrectionSpec spec =
      WithWeight(Drift(source), Level::kSequence, Bound::kTruncate, 0.0, upper);
  spec.weight.aggregate_clamp = kSafetyClamp;
  return spec;
}

CorrectionSpec TokenIcepop(RatioSource source, double lower, double upper) {
  CorrectionSpec spec =
      WithWeight(Drift(source), Level::kToken, Bound::kMask, lower, upper);
  spec.weight.token_clamp = kSafetyClamp;
  return spec;
}

CorrectionSpec Unclamped(Level level, Bound bound, double lower, double upper) {
  return WithWeight(Drift(kDecoupled), level, bound, lower, upper);
}

RejectionRule RatioRule(Aggregation aggregation, double lower, double upper,
                        double token_clamp) {
  RejectionRule rule;
  rule.aggregation = aggregation;
  rule.token_clamp = token_clamp;
  rule.lower = LogRatio(lower);
  rule.upper = LogRatio(upper);
  return rule;
}

RejectionRule GeometricRule(double lower, double upper) {
  return RatioRule(Aggregation::kMean, lower, upper, kSafetyClamp);
}

RejectionRule K3Rule(double upper) {
  RejectionRule rule;
  rule.estimator = Estimator::kK3;
  rule.aggregation = Aggregation::kMean;
  rule.token_clamp = kSafetyClamp;
  rule.upper = upper;
  return rule;
}

LossSpec Loss(Surrogate surrogate, RatioSource source) {
  LossSpec loss;
  loss.surrogate = surrogate;
  loss.source = source;
  loss.metrics_source = source;
  return loss;
}

LossSpec Clipped(LossSpec loss, double low, double high) {
  loss.clip_low = low;
  loss.clip_high = high;
  return loss;
}

LossSpec Clamped(LossSpec loss) {
  loss.log_ratio_lower = -kSafetyClamp;
  loss.log_ratio_upper = kSafetyClamp;
  return loss;
}

LossSpec RowMeans(LossSpec loss) {
  loss.reduction = {BatchCount::kNonemptyRows, RowCount::kTokens, 1.0};
  return loss;
}

LossSpec PpoClip(double low, double high, double dual_clip) {
  LossSpec loss = Clamped(
      Clipped(Loss(Surrogate::kPpoClip, RatioSource::kCurrentOld), low, high));
  loss.dual_clip = dual_clip;
  return loss;
}

CorrectionSpec WithLoss(CorrectionSpec spec, const LossSpec& loss) {
  spec.loss = loss;
  return spec;
}

CorrectionSpec OnlyLoss(const LossSpec& loss) {
  return WithLoss(Drift(loss.source), loss);
}

}  // namespace counterweight::kernels::methods
