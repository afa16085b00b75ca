// Methods spelled out in proto.
#include <cmath>
#include <string>
#include <vector>

#include "kernels/log_ratio.h"
#include "server/engine/codec_loss.h"
#include "server/engine/codec_method.h"
#include "server/engine/codec_shortest.h"

namespace counterweight::server {
namespace {

using kernels::kUnbounded;

// A bound is a ratio on the wire and a logarithm in a rule.
double ToRatio(double log) {
  return Shortest(std::exp(log), log, kernels::LogRatio);
}

template <class Message>
void EncodeClamps(double token_clamp, double aggregate_clamp,
                  Message* message) {
  if (token_clamp < kUnbounded) message->set_token_clamp(token_clamp);
  if (aggregate_clamp < kUnbounded) {
    message->set_aggregate_clamp(aggregate_clamp);
  }
}

v1::RatioSource Encode(kernels::RatioSource source) {
  // The wire keeps 0 for UNSPECIFIED; both enums list the sources in one order.
  return static_cast<v1::RatioSource>(static_cast<int>(source) + 1);
}

void EncodeRule(const kernels::RejectionRule& spec, v1::RejectionRule* rule) {
  rule->set_ratio_source(Encode(spec.source));
  rule->set_estimator(
      static_cast<v1::Estimator>(static_cast<int>(spec.estimator) + 1));
  rule->set_aggregation(
      static_cast<v1::Aggregation>(static_cast<int>(spec.aggregation) + 1));
  rule->set_condition(
      static_cast<v1::RuleCondition>(static_cast<int>(spec.condition) + 1));
  rule->set_effect(
      static_cast<v1::RuleEffect>(static_cast<int>(spec.effect) + 1));
  EncodeClamps(spec.token_clamp, spec.aggregate_clamp, rule);
  const bool ratio = spec.estimator == kernels::Estimator::kRatio;
  if (spec.lower > -kUnbounded) {
    rule->set_lower(ratio ? ToRatio(spec.lower) : spec.lower);
  }
  if (spec.upper < kUnbounded) {
    rule->set_upper(ratio ? ToRatio(spec.upper) : spec.upper);
  }
  // The wire wants an end of each interval, and 0 bounds no ratio.
  if (ratio && !rule->has_lower() && !rule->has_upper()) rule->set_lower(0.0);
}

void EncodeWeight(const kernels::WeightSpec& spec,
                  v1::ImportanceWeight* weight) {
  weight->set_ratio_source(Encode(spec.source));
  // kNone is 0 in both.
  weight->set_level(static_cast<v1::Level>(spec.level));
  weight->set_bound(static_cast<v1::Bound>(static_cast<int>(spec.bound) + 1));
  EncodeClamps(spec.token_clamp, spec.aggregate_clamp, weight);
  if (spec.lower > 0.0) weight->set_lower(spec.lower);
  if (spec.upper < kUnbounded) weight->set_upper(spec.upper);
  const bool is_bounded = spec.bound != kernels::Bound::kNone;
  if (is_bounded && !weight->has_lower() && !weight->has_upper()) {
    weight->set_lower(0.0);
  }
  weight->set_normalize(spec.normalize);
  if (spec.after_rule > 0) {
    weight->set_after_rule(static_cast<uint32_t>(spec.after_rule));
  }
}

// Tells what the wire has no words for without a list of it, which would have
// to grow with the spec.
bool DecodesTo(const kernels::CorrectionSpec& spec,
               const v1::CorrectionConfig& config) {
  const LossFacts facts{.present = {true, true, true}, .seed = spec.loss.seed};
  std::vector<std::string> names;
  Violations violations;
  const kernels::CorrectionSpec decoded =
      DecodeConfig(config, facts, "", &names, &violations);
  return violations.empty() && decoded == spec;
}

}  // namespace

std::optional<v1::CorrectionConfig> EncodeConfig(
    const kernels::CorrectionSpec& spec) {
  v1::CorrectionConfig config;
  config.set_drift_source(Encode(spec.drift_source));
  config.set_rule_evaluation(
      static_cast<v1::RuleEvaluation>(static_cast<int>(spec.evaluation) + 1));
  for (int r = 0; r < spec.num_rules; ++r) {
    EncodeRule(spec.rules[r], config.add_rules());
  }
  EncodeLoss(spec.loss, &config);
  if (spec.weight.level != kernels::Level::kNone) {
    EncodeWeight(spec.weight, config.mutable_importance_weight());
  }
  if (!DecodesTo(spec, config)) return std::nullopt;
  return config;
}

}  // namespace counterweight::server
