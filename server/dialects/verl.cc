#include "server/dialects/verl.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/log_ratio.h"
#include "server/dialects/block_reader.h"
#include "server/dialects/verl_layout.h"
#include "server/dialects/verl_metrics.h"
#include "server/dialects/verl_presets.h"
#include "server/dialects/verl_thresholds.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using kernels::Bound;
using kernels::CorrectionSpec;
using kernels::Estimator;
using kernels::kSafetyClamp;
using kernels::kUnbounded;
using kernels::Level;
using kernels::RatioSource;
using kernels::RejectionRule;
using kernels::WeightSpec;

// More unknown options than these are not listed one by one.
constexpr size_t kMaxListedOptions = 16;

// What the options of before verl's pull request 4544 are called now.
struct FormerOption {
  std::string_view name;
  std::string_view now;
};

constexpr FormerOption kFormerOptions[] = {
    {"token", "token_k1"},
    {"sequence", "seq_sum_k1"},
    {"geometric", "seq_mean_k1"},
};

std::string Advice(std::string_view option) {
  for (const FormerOption& former : kFormerOptions) {
    if (former.name == option) {
      return Concat(" What was '", former.name, "' is '", former.now, "' now.");
    }
  }
  return {};
}

void RequireTensor(bool present, std::string_view role, std::string_view name,
                   std::string_view reason, Violations* violations) {
  if (present) return;
  violations->push_back({Concat("tensors[", role, "]"),
                         Concat(name, " is required: ", reason, ".")});
}

// bypass_mode decides which ratio everything is about.
RatioSource ReadMode(const BlockReader& reader, const RequestFacts& facts,
                     Violations* violations) {
  constexpr std::string_view kCurrentRollout =
      "bypass_mode true corrects current_log_probs - rollout_log_probs";
  constexpr std::string_view kOldRollout =
      "bypass_mode false corrects old_log_probs - rollout_log_probs";
  const bool bypass = reader.ReadBool("bypass_mode", false);
  // Which tensors a mode needs is only known where the mode is.
  if (!reader.IsNull("bypass_mode") &&
      !reader.Find("bypass_mode")->has_bool_value()) {
    return RatioSource::kOldRollout;
  }
  const std::string_view reason = bypass ? kCurrentRollout : kOldRollout;
  RequireTensor(facts.has_rollout_log_probs, "ROLLOUT_LOG_PROBS",
                "rollout_log_probs", reason, violations);
  if (!bypass) {
    RequireTensor(facts.has_old_log_probs, "OLD_LOG_PROBS", "old_log_probs",
                  reason, violations);
    return RatioSource::kOldRollout;
  }
  RequireTensor(facts.has_current_log_probs, "CURRENT_LOG_PROBS",
                "current_log_probs", reason, violations);
  // Read only in this mode, as in verl.
  const Value* loss_type = reader.Find("loss_type");
  if (loss_type != nullptr && loss_type->string_value() != "ppo_clip" &&
      loss_type->string_value() != "reinforce") {
    reader.Violate("loss_type",
                   Concat("Invalid loss_type: must be 'reinforce' or "
                          "'ppo_clip', got ",
                          Describe(*loss_type), "."));
  }
  return RatioSource::kCurrentRollout;
}

Level ReadLevel(const BlockReader& reader) {
  const Value& value = *reader.Find("rollout_is");
  if (value.string_value() == "token") return Level::kToken;
  if (value.string_value() == "sequence") return Level::kSequence;
  reader.Violate(
      "rollout_is",
      Concat("Invalid rollout_is: must be one of 'sequence', 'token', or "
             "null for none, got ",
             Describe(value), "."));
  return Level::kNone;
}

// The importance weight, or level kNone.
WeightSpec ReadWeight(const BlockReader& reader, RatioSource source,
                      Translation* translation) {
  WeightSpec weight;
  weight.source = source;
  const bool normalize = reader.ReadBool("rollout_is_batch_normalize", false);
  if (reader.IsNull("rollout_is")) return weight;

  const Value* value = reader.Find("rollout_is_threshold");
  IsThreshold threshold;
  if (value != nullptr) {
    if (reader.IsNull("rollout_is_threshold")) {
      translation->warnings.push_back(
          Concat(reader.Path("rollout_is_threshold"),
                 " is null, which switches rollout_is off in verl: there "
                 "are no importance weights."));
      return weight;
    }
    std::vector<std::string> problems;
    const auto parsed = ParseIsThreshold(*value, &problems);
    for (std::string& problem : problems) {
      reader.Violate("rollout_is_threshold", std::move(problem));
    }
    if (parsed) threshold = *parsed;
  }
  weight.level = ReadLevel(reader);
  // verl clamps once: the token's log ratio, or the sequence's sum of unclamped
  // ones.
  (weight.level == Level::kToken ? weight.token_clamp
                                 : weight.aggregate_clamp) = kSafetyClamp;
  weight.upper = threshold.upper;
  weight.lower = threshold.lower.value_or(0.0);
  weight.bound = threshold.lower                 ? Bound::kMask
                 : threshold.upper == kUnbounded ? Bound::kNone
                                                 : Bound::kTruncate;
  weight.normalize = normalize;
  return weight;
}

// The options of rollout_rs, each once; null where there is none of that name.
std::vector<const RsOption*> ReadOptions(const BlockReader& reader) {
  const Value& value = *reader.Find("rollout_rs");
  if (value.kind_case() != Value::kStringValue) {
    reader.Violate("rollout_rs",
                   Concat("rollout_rs must be a non-empty string (comma "
                          "separated for multiple options), got ",
                          Describe(value), "."));
    return {};
  }
  if (value.string_value().size() > kMaxListBytes) {
    reader.Violate("rollout_rs",
                   Concat("rollout_rs is longer than ",
                          std::to_string(kMaxListBytes), " bytes."));
    return {};
  }
  std::vector<std::string_view> names;
  for (const std::string_view name : SplitList(value.string_value())) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  std::vector<std::string_view> valid;
  for (const RsOption& option : RsOptions()) valid.push_back(option.name);
  if (names.empty()) {
    reader.Violate("rollout_rs",
                   Concat("rollout_rs must contain at least one valid "
                          "option, of ",
                          JoinNames(valid), "."));
  }
  std::vector<const RsOption*> options;
  size_t unknown = 0;
  for (const std::string_view name : names) {
    options.push_back(FindRsOption(name));
    if (options.back() != nullptr || ++unknown > kMaxListedOptions) continue;
    reader.Violate("rollout_rs", Concat("Invalid rollout_rs option: ",
                                        Quote(name), ". Must be one of ",
                                        JoinNames(valid), ".", Advice(name)));
  }
  return options;
}

// One rule that keeps what verl's option keeps. k1 is minus the log ratio and
// verl compares it with the logs of the bounds, so that "lo_hi" keeps ratios in
// [1/hi, 1/lo].
RejectionRule MakeRule(const RsOption& option, const RsThreshold& threshold,
                       RatioSource source) {
  RejectionRule rule;
  rule.source = source;
  rule.estimator = option.estimator;
  rule.aggregation = option.aggregation;
  rule.token_clamp = kSafetyClamp;
  if (option.estimator == Estimator::kRatio) {
    // Subtracted from zero, so that a bound of 1 does not become -0.
    rule.lower = 0.0 - kernels::LogRatio(threshold.upper);
    rule.upper = 0.0 - kernels::LogRatio(threshold.lower);
  } else {
    // k2 and k3 are never negative; a rule needs an end, and "inf" is none.
    rule.lower = threshold.upper == kUnbounded ? 0.0 : -kUnbounded;
    rule.upper = threshold.upper;
  }
  return rule;
}

std::string SixDigits(double number) {
  char buffer[32];
  const auto [end, error] = std::to_chars(
      buffer, buffer + sizeof(buffer), number, std::chars_format::general, 6);
  return std::string(buffer, end);
}

// Says so where k1's direction makes a difference that a user would not expect.
void WarnOfDirection(const BlockReader& reader, const RsOption& option,
                     const RsThreshold& threshold, Translation* translation) {
  constexpr double kNearlyReciprocal = 1e-3;
  if (option.estimator != Estimator::kRatio ||
      std::abs(std::log(threshold.lower) + std::log(threshold.upper)) <=
          kNearlyReciprocal) {
    return;
  }
  translation->warnings.push_back(
      Concat(reader.Path("rollout_rs_threshold"),
             ": verl bounds k1, which is minus the "
             "log ratio, so option '",
             option.name, "' with bounds ", FormatNumber(threshold.lower),
             " and ", FormatNumber(threshold.upper), " keeps ratios from ",
             SixDigits(1.0 / threshold.upper), " to ",
             SixDigits(1.0 / threshold.lower), "."));
}

void ReadRules(const BlockReader& reader, RatioSource source,
               Translation* translation) {
  if (reader.IsNull("rollout_rs")) return;
  const std::vector<const RsOption*> options = ReadOptions(reader);
  const Value* value = reader.Find("rollout_rs_threshold");
  std::vector<std::string> problems;
  const std::vector<RsThreshold> thresholds =
      ParseRsThresholds(value == nullptr ? Value::default_instance() : *value,
                        options, &problems);
  for (std::string& problem : problems) {
    // With no option there is nothing that thresholds could match.
    if (options.empty()) break;
    reader.Violate("rollout_rs_threshold", std::move(problem));
  }
  if (!translation->violations.empty()) return;
  CorrectionSpec& spec = translation->spec;
  for (size_t i = 0; i < options.size(); ++i) {
    spec.rules[spec.num_rules++] = MakeRule(*options[i], thresholds[i], source);
    translation->rule_names.emplace_back(options[i]->name);
    WarnOfDirection(reader, *options[i], thresholds[i], translation);
  }
}

// All of the configuration's fields.
void ReadConfig(const BlockReader& reader, const RequestFacts& facts,
                Translation* translation) {
  const RatioSource source = ReadMode(reader, facts, &translation->violations);
  translation->spec.drift_source = source;
  translation->spec.weight = ReadWeight(reader, source, translation);
  translation->has_weights = translation->spec.weight.level != Level::kNone;
  ReadRules(reader, source, translation);
  // verl reports them wherever it has both log-probs.
  translation->spec.probability_metrics = true;
  translation->report = [spec = translation->spec,
                         names = translation->rule_names,
                         threshold_path = reader.Path("rollout_is_threshold")](
                            const kernels::BatchSums& sums, MetricMap* metrics,
                            Violations* violations) {
    if (sums.nonempty_sequences == 0) {
      violations->push_back(
          {"tensors[RESPONSE_MASK]",
           "response_mask must contain at least one valid token (1)."});
      return;
    }
    const bool has_weights = spec.weight.level != Level::kNone;
    if (has_weights && sums.weight.range.max == 0.0) {
      violations->push_back(
          {threshold_path,
           "Every importance weight is 0: rollout_is_threshold leaves no "
           "ratio of this batch inside its bounds, and verl divides by "
           "zero."});
      return;
    }
    if (has_weights) AddVerlWeightMetrics(spec.weight, sums, metrics);
    AddVerlRuleMetrics(spec, names, sums, metrics);
    AddVerlDriftMetrics(sums, metrics);
    AddVerlProbabilityMetrics(sums, metrics);
  };
}

}  // namespace

Translation TranslateVerl(const Struct& block, bool ignore_unknown_fields,
                          const RequestFacts& facts) {
  Translation translation;
  const VerlLayout layout =
      LocateVerlConfig(block, facts.wants_gradient, &translation.violations);
  const BlockReader reader(*layout.config, layout.path,
                           &translation.violations);
  if (!reader.IsNull(kVerlPolicyLoss)) {
    reader.Violate(kVerlPolicyLoss,
                   "This server computes no policy losses yet; without "
                   "policy_loss it answers weights, keep mask and metrics.");
  }
  if (reader.IsNull(kVerlPreset)) {
    CheckVerlFields(reader, ignore_unknown_fields, &translation.warnings);
    ReadConfig(reader, facts, &translation);
    return translation;
  }
  const std::optional<ExpandedPreset> preset =
      ExpandVerlPreset(reader, ignore_unknown_fields, &translation.warnings);
  if (!preset) return translation;
  const BlockReader config(preset->config, layout.path, &translation.violations,
                           preset->argument_of);
  ReadConfig(config, facts, &translation);
  return translation;
}

}  // namespace counterweight::server
