// Encodes specs as spelled-out methods.
#include <cmath>

#include "kernels/log_ratio.h"
#include "kernels/rules/estimators.h"
#include "server/engine/codec_config.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_loss.h"
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

void EncodeRule(const kernels::RejectionRule& spec, v1::RejectionRule* rule) {
  rule->set_ratio_source(ToWire(kRatioSources, spec.source));
  rule->set_estimator(ToWire(kEstimators, spec.estimator));
  rule->set_aggregation(ToWire(kAggregations, spec.aggregation));
  rule->set_condition(ToWire(kConditions, spec.condition));
  rule->set_effect(ToWire(kEffects, spec.effect));
  EncodeClamps(spec.token_clamp, spec.aggregate_clamp, rule);
  const bool ratio =
      kernels::InfoOf(spec.estimator).Has(kernels::kEstimatesLogRatio);
  if (spec.lower > -kUnbounded) {
    rule->set_lower(ratio ? ToRatio(spec.lower) : spec.lower);
  }
  if (spec.upper < kUnbounded) {
    rule->set_upper(ratio ? ToRatio(spec.upper) : spec.upper);
  }
  // The wire requires one end of each interval, and 0 bounds no ratio.
  if (ratio && !rule->has_lower() && !rule->has_upper()) rule->set_lower(0.0);
}

void EncodeWeight(const kernels::WeightSpec& spec,
                  v1::ImportanceWeight* weight) {
  weight->set_ratio_source(ToWire(kRatioSources, spec.source));
  weight->set_level(ToWire(kLevels, spec.level));
  weight->set_bound(ToWire(kBoundKinds, spec.bound));
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

// Detects specs that the wire cannot express without a list that would grow
// with the spec.
bool DecodesTo(const kernels::CorrectionSpec& spec,
               const v1::CorrectionConfig& config) {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.seed = spec.loss.seed;
  const Result<kernels::CorrectionSpec> decoded = DecodeConfig(config, facts);
  return decoded.ok() && decoded.value == spec;
}

}  // namespace

std::optional<v1::CorrectionConfig> EncodeConfig(
    const kernels::CorrectionSpec& spec) {
  v1::CorrectionConfig config;
  config.set_drift_source(ToWire(kRatioSources, spec.drift_source));
  config.set_rule_evaluation(ToWire(kEvaluations, spec.evaluation));
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
