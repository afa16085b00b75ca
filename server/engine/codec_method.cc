#include "server/engine/codec_method.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/log_ratio.h"
#include "server/engine/codec_loss.h"

namespace counterweight::server {
namespace {

using kernels::kUnbounded;

class ConfigDecoder {
 public:
  ConfigDecoder(const PresentLogProbs& present, std::string prefix,
                Violations* violations)
      : present_(present),
        prefix_(std::move(prefix)),
        violations_(violations) {}

  void Fail(const std::string& field, std::string description) {
    violations_->push_back({prefix_ + field, std::move(description)});
  }

  kernels::RatioSource Source(v1::RatioSource source,
                              const std::string& field) {
    switch (static_cast<int>(source)) {
      case v1::RATIO_SOURCE_OLD_ROLLOUT:
        return kernels::RatioSource::kOldRollout;
      case v1::RATIO_SOURCE_CURRENT_ROLLOUT:
        return kernels::RatioSource::kCurrentRollout;
      case v1::RATIO_SOURCE_CURRENT_OLD:
        return kernels::RatioSource::kCurrentOld;
      case v1::RATIO_SOURCE_UNSPECIFIED:
      default:
        Fail(field, "is required: OLD_ROLLOUT, CURRENT_ROLLOUT or CURRENT_OLD");
        return kernels::RatioSource::kOldRollout;
    }
  }

  kernels::RatioSource DriftSource(v1::RatioSource source) {
    if (source != v1::RATIO_SOURCE_UNSPECIFIED) {
      return Source(source, "drift_source");
    }
    if (present_.old && present_.rollout) {
      return kernels::RatioSource::kOldRollout;
    }
    if (present_.current && present_.rollout) {
      return kernels::RatioSource::kCurrentRollout;
    }
    return present_.current && present_.old ? kernels::RatioSource::kCurrentOld
                                            : kernels::RatioSource::kOldRollout;
  }

  // An absent number, or one that is there and finite.
  double Number(bool has, double value, double absent,
                const std::string& field) {
    if (!has) return absent;
    if (std::isfinite(value)) return value;
    Fail(field, "must be a finite number; leave it out for none");
    return absent;
  }

  void Weight(const v1::ImportanceWeight& weight, kernels::WeightSpec* spec) {
    const std::string at = "importance_weight.";
    spec->source = Source(weight.ratio_source(), at + "ratio_source");
    switch (static_cast<int>(weight.level())) {
      case v1::LEVEL_TOKEN:
        spec->level = kernels::Level::kToken;
        break;
      case v1::LEVEL_SEQUENCE:
        spec->level = kernels::Level::kSequence;
        break;
      case v1::LEVEL_GEOMETRIC:
        spec->level = kernels::Level::kGeometric;
        break;
      case v1::LEVEL_PREFIX:
        spec->level = kernels::Level::kPrefix;
        break;
      case v1::LEVEL_UNSPECIFIED:
      default:
        Fail(at + "level", "is required: TOKEN, SEQUENCE, GEOMETRIC or PREFIX");
        spec->level = kernels::Level::kToken;
    }
    switch (static_cast<int>(weight.bound())) {
      case v1::BOUND_NONE:
        spec->bound = kernels::Bound::kNone;
        break;
      case v1::BOUND_TRUNCATE:
        spec->bound = kernels::Bound::kTruncate;
        break;
      case v1::BOUND_MASK:
        spec->bound = kernels::Bound::kMask;
        break;
      case v1::BOUND_UNSPECIFIED:
      default:
        Fail(at + "bound", "is required: NONE, TRUNCATE or MASK");
        spec->bound = kernels::Bound::kTruncate;
    }
    const bool needs_end = weight.bound() == v1::BOUND_TRUNCATE ||
                           weight.bound() == v1::BOUND_MASK;
    if (needs_end && !weight.has_lower() && !weight.has_upper()) {
      Fail(
          at + "upper",
          "TRUNCATE and MASK need lower, upper or both; use NONE for no bound");
    }
    spec->token_clamp = Number(weight.has_token_clamp(), weight.token_clamp(),
                               kUnbounded, at + "token_clamp");
    spec->aggregate_clamp =
        Number(weight.has_aggregate_clamp(), weight.aggregate_clamp(),
               kUnbounded, at + "aggregate_clamp");
    spec->lower = Number(weight.has_lower(), weight.lower(), 0.0, at + "lower");
    spec->upper =
        Number(weight.has_upper(), weight.upper(), kUnbounded, at + "upper");
    spec->normalize = weight.normalize();
    spec->after_rule = static_cast<int32_t>(std::min<uint32_t>(
        weight.after_rule(), std::numeric_limits<int32_t>::max()));
  }

  void Rule(const v1::RejectionRule& rule, const std::string& at,
            kernels::RejectionRule* spec) {
    spec->source = Source(rule.ratio_source(), at + "ratio_source");
    switch (static_cast<int>(rule.estimator())) {
      case v1::ESTIMATOR_RATIO:
        spec->estimator = kernels::Estimator::kRatio;
        break;
      case v1::ESTIMATOR_K2:
        spec->estimator = kernels::Estimator::kK2;
        break;
      case v1::ESTIMATOR_K3:
        spec->estimator = kernels::Estimator::kK3;
        break;
      case v1::ESTIMATOR_BINARY_KL:
        spec->estimator = kernels::Estimator::kBinaryKl;
        break;
      case v1::ESTIMATOR_TOTAL_VARIATION:
        spec->estimator = kernels::Estimator::kTotalVariation;
        break;
      case v1::ESTIMATOR_UNSPECIFIED:
      default:
        Fail(at + "estimator",
             "is required: RATIO, K2, K3, BINARY_KL or TOTAL_VARIATION");
    }
    spec->aggregation = RuleAggregation(rule.aggregation(), at);
    switch (static_cast<int>(rule.condition())) {
      case v1::RULE_CONDITION_UNSPECIFIED:
      case v1::RULE_CONDITION_ALWAYS:
        spec->condition = kernels::Condition::kAlways;
        break;
      case v1::RULE_CONDITION_NEGATIVE_ADVANTAGE:
        spec->condition = kernels::Condition::kNegativeAdvantage;
        break;
      default:
        Fail(at + "condition", "is unknown: ALWAYS or NEGATIVE_ADVANTAGE");
    }
    switch (static_cast<int>(rule.effect())) {
      case v1::RULE_EFFECT_UNSPECIFIED:
      case v1::RULE_EFFECT_DROP:
        spec->effect = kernels::Effect::kDrop;
        break;
      case v1::RULE_EFFECT_ZERO_WEIGHT:
        spec->effect = kernels::Effect::kZeroWeight;
        break;
      default:
        Fail(at + "effect", "is unknown: DROP or ZERO_WEIGHT");
    }
    spec->token_clamp = Number(rule.has_token_clamp(), rule.token_clamp(),
                               kUnbounded, at + "token_clamp");
    spec->aggregate_clamp =
        Number(rule.has_aggregate_clamp(), rule.aggregate_clamp(), kUnbounded,
               at + "aggregate_clamp");
    RuleInterval(rule, at, spec);
  }

 private:
  kernels::Aggregation RuleAggregation(v1::Aggregation aggregation,
                                       const std::string& at) {
    switch (static_cast<int>(aggregation)) {
      case v1::AGGREGATION_TOKEN:
        return kernels::Aggregation::kToken;
      case v1::AGGREGATION_SUM:
        return kernels::Aggregation::kSum;
      case v1::AGGREGATION_MEAN:
        return kernels::Aggregation::kMean;
      case v1::AGGREGATION_MAX:
        return kernels::Aggregation::kMax;
      case v1::AGGREGATION_ALL:
        return kernels::Aggregation::kAll;
      case v1::AGGREGATION_PREFIX_MEAN:
        return kernels::Aggregation::kPrefixMean;
      case v1::AGGREGATION_UNSPECIFIED:
      default:
        Fail(at + "aggregation",
             "is required: TOKEN, SUM, MEAN, MAX, ALL or PREFIX_MEAN");
        return kernels::Aggregation::kToken;
    }
  }

  void RuleInterval(const v1::RejectionRule& rule, const std::string& at,
                    kernels::RejectionRule* spec) {
    if (!rule.has_lower() && !rule.has_upper()) {
      Fail(at + "upper", "a rule needs lower, upper or both");
    }
    double lower =
        Number(rule.has_lower(), rule.lower(), -kUnbounded, at + "lower");
    double upper =
        Number(rule.has_upper(), rule.upper(), kUnbounded, at + "upper");
    if (spec->estimator == kernels::Estimator::kRatio) {
      if (rule.has_lower() && !(lower >= 0.0)) {
        Fail(at + "lower", "must be a ratio >= 0");
        lower = 0.0;
      }
      if (rule.has_upper() && !(upper > 0.0)) {
        Fail(at + "upper", "must be a ratio > 0");
        upper = kUnbounded;
      }
      lower = rule.has_lower() ? kernels::LogRatio(lower) : -kUnbounded;
      upper = kernels::LogRatio(upper);
    }
    spec->lower = lower;
    spec->upper = upper;
  }

  const PresentLogProbs& present_;
  std::string prefix_;
  Violations* violations_;
};

bool IsRuleName(const std::string& name) {
  constexpr size_t kMaxLength = 64;
  return !name.empty() && name.size() <= kMaxLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

void NameRules(const v1::CorrectionConfig& config, ConfigDecoder* decoder,
               std::vector<std::string>* names) {
  for (int r = 0; r < config.rules_size(); ++r) {
    const std::string& name = config.rules(r).name();
    if (name.empty()) continue;
    const std::string field = "rules[" + std::to_string(r) + "].name";
    if (!IsRuleName(name)) {
      decoder->Fail(field, "must match [a-z0-9_]{1,64}");
    } else if (std::find(names->begin(), names->end(), name) != names->end()) {
      decoder->Fail(field, "is the name of another rule: " + name);
    } else {
      (*names)[static_cast<size_t>(r)] = name;
    }
  }
}

}  // namespace

kernels::CorrectionSpec DecodeConfig(const v1::CorrectionConfig& config,
                                     const LossFacts& facts,
                                     const std::string& prefix,
                                     std::vector<std::string>* rule_names,
                                     Violations* violations) {
  ConfigDecoder decoder(facts.present, prefix, violations);
  kernels::CorrectionSpec spec;
  spec.drift_source = decoder.DriftSource(config.drift_source());
  if (config.rules_size() > kernels::kMaxRules) {
    decoder.Fail("rules", "has " + std::to_string(config.rules_size()) +
                              " entries; at most " +
                              std::to_string(kernels::kMaxRules));
    return spec;
  }
  spec.num_rules = config.rules_size();
  for (int r = 0; r < config.rules_size(); ++r) {
    decoder.Rule(config.rules(r), "rules[" + std::to_string(r) + "].",
                 &spec.rules[r]);
  }
  switch (static_cast<int>(config.rule_evaluation())) {
    case v1::RULE_EVALUATION_UNSPECIFIED:
    case v1::RULE_EVALUATION_PARALLEL:
      spec.evaluation = kernels::Evaluation::kParallel;
      break;
    case v1::RULE_EVALUATION_SEQUENTIAL:
      spec.evaluation = kernels::Evaluation::kSequential;
      break;
    default:
      decoder.Fail("rule_evaluation", "is unknown: PARALLEL or SEQUENTIAL");
  }
  if (config.has_importance_weight()) {
    decoder.Weight(config.importance_weight(), &spec.weight);
  }
  DecodeLoss(config.has_policy_loss() ? &config.policy_loss() : nullptr,
             config.has_kl_penalty() ? &config.kl_penalty() : nullptr, facts,
             prefix, &spec, violations);
  for (const kernels::SpecViolation& violation : kernels::Validate(spec)) {
    std::string field = violation.field;
    if (field.rfind("weight.", 0) == 0) field.insert(0, "importance_");
    decoder.Fail(field, violation.reason);
  }
  *rule_names = DefaultRuleNames(spec);
  NameRules(config, &decoder, rule_names);
  return spec;
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
