#include "server/engine/dialects/verl_thresholds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "kernels/float_bounds.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/python_float.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;
using kernels::Aggregation;
using kernels::Estimator;

constexpr RsOption kRsOptions[] = {
    {"seq_max_k2", Estimator::kK2, Aggregation::kMax},
    {"seq_max_k3", Estimator::kK3, Aggregation::kMax},
    {"seq_mean_k1", Estimator::kRatio, Aggregation::kMean},
    {"seq_mean_k2", Estimator::kK2, Aggregation::kMean},
    {"seq_mean_k3", Estimator::kK3, Aggregation::kMean},
    {"seq_sum_k1", Estimator::kRatio, Aggregation::kSum},
    {"seq_sum_k2", Estimator::kK2, Aggregation::kSum},
    {"seq_sum_k3", Estimator::kK3, Aggregation::kSum},
    {"token_k1", Estimator::kRatio, Aggregation::kToken},
    {"token_k2", Estimator::kK2, Aggregation::kToken},
    {"token_k3", Estimator::kK3, Aggregation::kToken},
};

// verl lets NaN pass every check and then rejects every token, or makes every
// weight NaN or zero.
constexpr std::string_view kNanReason =
    " is not a number (NaN): verl accepts it and then rejects or spoils every "
    "token; write a positive number";

// Appends verl's complaints about the bounds of the weight.
void CheckIsBounds(const IsThreshold& threshold,
                   std::vector<std::string>* problems) {
  const double upper = threshold.upper;
  if (std::isnan(upper)) {
    problems->push_back(
        Concat("rollout_is_threshold upper bound", kNanReason, "."));
  } else if (!kernels::IsAboveZero(upper)) {
    problems->push_back(
        Concat("rollout_is_threshold upper bound must be positive, got ",
               FormatNumber(upper), "."));
  }
  if (!threshold.lower) return;
  const double lower = *threshold.lower;
  if (std::isnan(lower)) {
    problems->push_back(
        Concat("rollout_is_threshold lower bound", kNanReason, "."));
  } else if (lower <= 0) {
    problems->push_back(
        Concat("rollout_is_threshold lower bound must be positive, got ",
               FormatNumber(lower), "."));
  } else if (lower > upper && upper > 0) {
    problems->push_back(
        Concat("rollout_is_threshold lower bound must be <= upper bound, got ",
               FormatNumber(lower), " > ", FormatNumber(upper), "."));
  }
}

std::optional<IsThreshold> ParseIsString(std::string_view text,
                                         std::vector<std::string>* problems) {
  const std::string_view stripped = StripBlanks(text);
  if (stripped.empty()) {
    problems->push_back("rollout_is_threshold must not be an empty string.");
    return std::nullopt;
  }
  // The first '_' separates; later ones belong to the upper number, so that
  // "0.5_5_0" means 0.5 to 50.
  const size_t separator = stripped.find('_');
  std::optional<double> lower;
  std::optional<double> upper;
  if (separator == std::string_view::npos) {
    upper = ParsePythonFloat(stripped);
  } else {
    lower = ParsePythonFloat(stripped.substr(0, separator));
    upper = ParsePythonFloat(stripped.substr(separator + 1));
  }
  if (!upper || (separator != std::string_view::npos && !lower)) {
    problems->push_back(
        Concat("Invalid rollout_is_threshold ", Quote(text),
               ": expected a number such as '2.0', or 'lower_upper' such as "
               "'0.5_5.0'."));
    return std::nullopt;
  }
  return IsThreshold{*upper, lower};
}

// One threshold of a k1 option. `text` is what the user wrote, for messages.
std::optional<RsThreshold> ParseK1(std::string_view option,
                                   std::string_view text,
                                   std::vector<std::string>* problems) {
  const size_t separator = text.find('_');
  std::optional<double> lower;
  std::optional<double> upper;
  if (separator == std::string_view::npos) {
    upper = ParsePythonFloat(text);
    // Python raises ZeroDivisionError for 0; an infinite bound fails below.
    if (upper) lower = 1.0 / *upper;
  } else {
    lower = ParsePythonFloat(text.substr(0, separator));
    upper = ParsePythonFloat(text.substr(separator + 1));
  }
  if (!lower || !upper) {
    problems->push_back(Concat(
        "Invalid numeric threshold ", Quote(text), " for option '", option,
        "': expected a number x >= 1, meaning '1/x_x', or 'lower_upper'."));
    return std::nullopt;
  }
  if (std::isnan(*lower) || std::isnan(*upper)) {
    problems->push_back(Concat("The threshold ", Quote(text), " for option '",
                               option, "'", kNanReason, "."));
    return std::nullopt;
  }
  if (*lower <= 0 || *upper <= 0) {
    problems->push_back(Concat(
        "Thresholds for option '", option, "' must be positive, got ",
        Quote(text),
        separator == std::string_view::npos ? ", which means '1/x_x'." : "."));
    return std::nullopt;
  }
  if (*lower > *upper) {
    problems->push_back(
        Concat("Thresholds for option '", option,
               "' must be lower <= upper, got ", Quote(text),
               separator == std::string_view::npos
                   ? ", which means '1/x_x': a single number must be >= 1."
                   : "."));
    return std::nullopt;
  }
  return RsThreshold{*lower, *upper};
}

// One threshold of a k2 or k3 option.
std::optional<RsThreshold> ParseUpper(std::string_view option,
                                      std::string_view text,
                                      std::vector<std::string>* problems) {
  if (text.find('_') != std::string_view::npos) {
    problems->push_back(
        Concat("rollout_rs_threshold for option '", option,
               "' must provide a single upper bound without '_'. Received ",
               Quote(text), "."));
    return std::nullopt;
  }
  const std::optional<double> upper = ParsePythonFloat(text);
  if (!upper) {
    problems->push_back(Concat("Invalid numeric threshold ", Quote(text),
                               " for option '", option, "'."));
    return std::nullopt;
  }
  if (std::isnan(*upper)) {
    problems->push_back(Concat("The threshold ", Quote(text), " for option '",
                               option, "'", kNanReason, "."));
    return std::nullopt;
  }
  if (*upper <= 0) {
    problems->push_back(Concat("Threshold for option '", option,
                               "' must be positive, got ", Quote(text), "."));
    return std::nullopt;
  }
  return RsThreshold{0.0, *upper};
}

}  // namespace

std::vector<std::string_view> SplitList(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = StripBlanks(text.substr(0, comma));
    if (!part.empty()) parts.push_back(part);
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::optional<IsThreshold> ParseIsThreshold(
    const Value& value, std::vector<std::string>* problems) {
  const size_t before = problems->size();
  std::optional<IsThreshold> threshold;
  switch (value.kind_case()) {
    case Value::kNumberValue:
      threshold = IsThreshold{value.number_value(), std::nullopt};
      break;
    case Value::kStringValue:
      threshold = ParseIsString(value.string_value(), problems);
      break;
    case Value::kBoolValue:
      problems->push_back(
          "rollout_is_threshold must be specified as a float or a string "
          "threshold specification, not a boolean.");
      break;
    case Value::kNullValue:
    case Value::kStructValue:
    case Value::kListValue:
    case Value::KIND_NOT_SET:
      problems->push_back(
          Concat("rollout_is_threshold must be a float or a string threshold "
                 "specification, got ",
                 Describe(value), "."));
      break;
  }
  if (threshold) CheckIsBounds(*threshold, problems);
  if (problems->size() > before) return std::nullopt;
  return threshold;
}

std::span<const RsOption> RsOptions() { return kRsOptions; }

const RsOption* FindRsOption(std::string_view name) {
  const auto* option =
      std::find_if(std::begin(kRsOptions), std::end(kRsOptions),
                   [&](const RsOption& row) { return row.name == name; });
  return option == std::end(kRsOptions) ? nullptr : option;
}

std::vector<RsThreshold> ParseRsThresholds(
    const Value& value, std::span<const RsOption* const> options,
    std::vector<std::string>* problems) {
  std::string number;
  std::vector<std::string_view> entries;
  switch (value.kind_case()) {
    case Value::kNumberValue:
      number = FormatNumber(value.number_value());
      entries.push_back(number);
      break;
    case Value::kStringValue:
      if (value.string_value().size() > kMaxListBytes) {
        problems->push_back(Concat("rollout_rs_threshold is longer than ",
                                   std::to_string(kMaxListBytes), " bytes."));
        return {};
      }
      entries = SplitList(value.string_value());
      break;
    case Value::kNullValue:
    case Value::KIND_NOT_SET:
      problems->push_back(
          "rollout_rs_threshold must be explicitly provided when rollout_rs is "
          "enabled. Set rollout_rs_threshold to the desired threshold value.");
      return {};
    case Value::kBoolValue:
    case Value::kStructValue:
    case Value::kListValue:
      problems->push_back(Concat(
          "rollout_rs_threshold must be a string or numeric value specifying "
          "per-option thresholds, got ",
          Describe(value), "."));
      return {};
  }
  if (entries.empty()) {
    problems->push_back(
        "rollout_rs_threshold must contain at least one threshold value.");
    return {};
  }
  if (entries.size() != 1 && entries.size() != options.size()) {
    problems->push_back(Concat(
        "rollout_rs_threshold expects either one threshold shared by all "
        "options or exactly ",
        std::to_string(options.size()),
        options.size() == 1 ? " threshold" : " thresholds",
        " to match the provided rollout_rs options, got ",
        std::to_string(entries.size()), "."));
    return {};
  }
  std::vector<RsThreshold> thresholds;
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i] == nullptr) continue;
    const std::string_view text = entries[entries.size() == 1 ? 0 : i];
    const std::optional<RsThreshold> threshold =
        options[i]->estimator == Estimator::kRatio
            ? ParseK1(options[i]->name, text, problems)
            : ParseUpper(options[i]->name, text, problems);
    if (threshold) thresholds.push_back(*threshold);
  }
  if (thresholds.size() < options.size()) return {};
  return thresholds;
}

}  // namespace counterweight::server
