#include "server/engine/codec_config.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "kernels/log_ratio.h"
#include "kernels/rules/estimators.h"
#include "server/engine/codec_calm_bound.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_fields.h"
#include "server/engine/codec_loss.h"

namespace counterweight::server {
namespace {

using kernels::kUnbounded;

constexpr char kPrefix[] = "method.config.";

class ConfigDecoder {
 public:
  ConfigDecoder(const RequestFacts& facts, Violations* violations)
      : facts_(facts), fields_(kPrefix, violations) {}

  FieldReader& fields() { return fields_; }

  kernels::RatioSource DriftSource(v1::RatioSource source) {
    if (source != v1::RATIO_SOURCE_UNSPECIFIED) {
      return Source(source, "drift_source");
    }
    if (facts_.has_old_log_probs && facts_.has_rollout_log_probs) {
      return kernels::RatioSource::kOldRollout;
    }
    if (facts_.has_current_log_probs && facts_.has_rollout_log_probs) {
      return kernels::RatioSource::kCurrentRollout;
    }
    return facts_.has_current_log_probs && facts_.has_old_log_probs
               ? kernels::RatioSource::kCurrentOld
               : kernels::RatioSource::kOldRollout;
  }

  void Weight(const v1::ImportanceWeight& weight, kernels::WeightSpec* spec) {
    const std::string at = "importance_weight.";
    spec->source = Source(weight.ratio_source(), at + "ratio_source");
    spec->level = fields_.Required(kLevels, weight.level(), at + "level",
                                   kernels::Level::kToken);
    // A missing bound counts as TRUNCATE: with NONE the interval would be
    // refused too.
    spec->bound = fields_.Required(kBoundKinds, weight.bound(), at + "bound",
                                   kernels::Bound::kTruncate);
    if (weight.has_upper_calm_quantile()) {
      fields_.Fail(at + "upper_calm_quantile", kNoCalmBoundHere);
    }
    const bool needs_end = weight.bound() == v1::BOUND_TRUNCATE ||
                           weight.bound() == v1::BOUND_MASK;
    if (needs_end && !weight.has_lower() && !weight.has_upper()) {
      fields_.Fail(
          at + "upper",
          "TRUNCATE and MASK need lower, upper or both; use NONE for no bound");
    }
    Clamps(weight, at, spec);
    spec->lower =
        fields_.Number(weight.has_lower(), weight.lower(), 0.0, at + "lower");
    spec->upper = fields_.Number(weight.has_upper(), weight.upper(), kUnbounded,
                                 at + "upper");
    spec->normalize = weight.normalize();
    spec->after_rule = static_cast<int32_t>(std::min<uint32_t>(
        weight.after_rule(), std::numeric_limits<int32_t>::max()));
  }

  void Rule(const v1::RejectionRule& rule, const std::string& at,
            kernels::RejectionRule* spec) {
    spec->source = Source(rule.ratio_source(), at + "ratio_source");
    spec->estimator =
        fields_.Required(kEstimators, rule.estimator(), at + "estimator",
                         kernels::Estimator::kRatio);
    spec->aggregation =
        fields_.Required(kAggregations, rule.aggregation(), at + "aggregation",
                         kernels::Aggregation::kToken);
    spec->condition =
        fields_.Optional(kConditions, rule.condition(), at + "condition");
    spec->effect = fields_.Optional(kEffects, rule.effect(), at + "effect");
    Clamps(rule, at, spec);
    RuleInterval(rule, at, spec);
  }

 private:
  kernels::RatioSource Source(v1::RatioSource source,
                              const std::string& field) {
    return fields_.Required(kRatioSources, source, field,
                            kernels::RatioSource::kOldRollout);
  }

  template <class Message, class Spec>
  void Clamps(const Message& message, const std::string& at, Spec* spec) {
    spec->token_clamp =
        fields_.Number(message.has_token_clamp(), message.token_clamp(),
                       kUnbounded, at + "token_clamp");
    spec->aggregate_clamp =
        fields_.Number(message.has_aggregate_clamp(), message.aggregate_clamp(),
                       kUnbounded, at + "aggregate_clamp");
  }

  void RuleInterval(const v1::RejectionRule& rule, const std::string& at,
                    kernels::RejectionRule* spec) {
    if (!rule.has_lower() && !rule.has_upper()) {
      fields_.Fail(at + "upper", "a rule needs lower, upper or both");
    }
    double lower = fields_.Number(rule.has_lower(), rule.lower(), -kUnbounded,
                                  at + "lower");
    double upper = fields_.Number(rule.has_upper(), rule.upper(), kUnbounded,
                                  at + "upper");
    if (kernels::InfoOf(spec->estimator).Has(kernels::kEstimatesLogRatio)) {
      if (rule.has_lower() && !(lower >= 0.0)) {
        fields_.Fail(at + "lower", "must be a ratio >= 0");
        lower = 0.0;
      }
      if (rule.has_upper() && !(upper > 0.0)) {
        fields_.Fail(at + "upper", "must be a ratio > 0");
        upper = kUnbounded;
      }
      lower = rule.has_lower() ? kernels::LogRatio(lower) : -kUnbounded;
      upper = kernels::LogRatio(upper);
    }
    spec->lower = lower;
    spec->upper = upper;
  }

  const RequestFacts& facts_;
  FieldReader fields_;
};

bool IsRuleName(const std::string& name) {
  constexpr size_t kMaxLength = 64;
  return !name.empty() && name.size() <= kMaxLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

}  // namespace

Result<kernels::CorrectionSpec> DecodeConfig(const v1::CorrectionConfig& config,
                                             const RequestFacts& facts) {
  Result<kernels::CorrectionSpec> result;
  kernels::CorrectionSpec& spec = result.value;
  ConfigDecoder decoder(facts, &result.violations);
  spec.drift_source = decoder.DriftSource(config.drift_source());
  if (config.rules_size() > kernels::kMaxRules) {
    decoder.fields().Fail(
        "rules", "has " + std::to_string(config.rules_size()) +
                     " entries; at most " + std::to_string(kernels::kMaxRules));
    return result;
  }
  spec.num_rules = config.rules_size();
  for (int r = 0; r < config.rules_size(); ++r) {
    decoder.Rule(config.rules(r), "rules[" + std::to_string(r) + "].",
                 &spec.rules[r]);
  }
  spec.evaluation = decoder.fields().Optional(
      kEvaluations, config.rule_evaluation(), "rule_evaluation");
  if (config.has_importance_weight()) {
    decoder.Weight(config.importance_weight(), &spec.weight);
  }
  DecodeLoss(config.has_policy_loss() ? &config.policy_loss() : nullptr,
             config.has_kl_penalty() ? &config.kl_penalty() : nullptr, facts,
             kPrefix, &spec, &result.violations);
  return result;
}

Result<std::vector<std::string>> ReadRuleNames(
    const v1::CorrectionConfig& config, const kernels::CorrectionSpec& spec) {
  Result<std::vector<std::string>> result{DefaultRuleNames(spec)};
  std::vector<std::string>& names = result.value;
  FieldReader fields(kPrefix, &result.violations);
  for (int r = 0; r < spec.num_rules; ++r) {
    const std::string& name = config.rules(r).name();
    if (name.empty()) continue;
    const std::string field = "rules[" + std::to_string(r) + "].name";
    if (!IsRuleName(name)) {
      fields.Fail(field, "must match [a-z0-9_]{1,64}");
    } else if (std::find(names.begin(), names.end(), name) != names.end()) {
      fields.Fail(field, "is the name of another rule: " + name);
    } else {
      names[static_cast<size_t>(r)] = name;
    }
  }
  return result;
}

std::vector<std::string> DefaultRuleNames(const kernels::CorrectionSpec& spec) {
  std::vector<std::string> names;
  for (int r = 0; r < spec.num_rules; ++r) {
    const std::string base = kernels::RuleName(spec.rules[r]);
    std::string name = base;
    for (int n = 2; std::find(names.begin(), names.end(), name) != names.end();
         ++n) {
      name = base + "_" + std::to_string(n);
    }
    names.push_back(name);
  }
  return names;
}

}  // namespace counterweight::server
