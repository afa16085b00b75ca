#include "server/engine/dialects/verl_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/verl_thresholds.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;
using kernels::CorrectionSpec;
using kernels::Estimator;
using kernels::kSafetyClamp;
using kernels::kUnbounded;
using kernels::RatioSource;
using kernels::RejectionRule;

// Limit of unknown options that are listed individually.
constexpr size_t kMaxListedOptions = 16;

// Current names of the options from before verl's pull request 4544.
struct FormerOption {
  std::string_view name;
  std::string_view now;
};

constexpr FormerOption kFormerOptions[] = {
    {"token", "token_k1"},
    {"sequence", "seq_sum_k1"},
    {"geometric", "seq_mean_k1"},
};

std::string OptionAdvice(std::string_view option) {
  for (const FormerOption& former : kFormerOptions) {
    if (former.name == option) {
      return Concat(" What was '", former.name, "' is '", former.now, "' now.");
    }
  }
  return {};
}

// Returns the options of rollout_rs, each once; null for an unknown name.
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
    reader.Violate("rollout_rs",
                   Concat("Invalid rollout_rs option: ", Quote(name), ". ",
                          DidYouMean(name, valid), "Must be one of ",
                          JoinNames(valid), ".", OptionAdvice(name)));
  }
  return options;
}

// Makes a rule that keeps the same tokens as verl's option. k1 is minus the log
// ratio and verl compares it with the logs of the bounds, so "lo_hi" keeps
// ratios in [1/hi, 1/lo].
RejectionRule MakeRule(const RsOption& option, const RsThreshold& threshold,
                       RatioSource source) {
  RejectionRule rule;
  rule.source = source;
  rule.estimator = option.estimator;
  rule.aggregation = option.aggregation;
  rule.token_clamp = kSafetyClamp;
  if (option.estimator == Estimator::kRatio) {
    // Subtracts from zero, so that a bound of 1 does not become -0.
    rule.lower = 0.0 - kernels::LogRatio(threshold.upper);
    rule.upper = 0.0 - kernels::LogRatio(threshold.lower);
  } else {
    // k2 and k3 are never negative; a rule needs a finite end, and "inf" is
    // none.
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

// Warns if k1's direction has an unexpected effect.
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

}  // namespace

void ReadVerlRules(const BlockReader& reader, RatioSource source,
                   Translation* translation) {
  if (reader.IsNull("rollout_rs")) return;
  const std::vector<const RsOption*> options = ReadOptions(reader);
  const Value* value = reader.Find("rollout_rs_threshold");
  std::vector<std::string> problems;
  const std::vector<RsThreshold> thresholds =
      ParseRsThresholds(value == nullptr ? Value::default_instance() : *value,
                        options, &problems);
  for (std::string& problem : problems) {
    // Without options there is nothing to match with thresholds.
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

}  // namespace counterweight::server
