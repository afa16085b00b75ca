#include "server/engine/dialects/roll_correction.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/fields.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using kernels::Aggregation;
using kernels::Level;

constexpr std::string_view kRollCorrection = "train_infer_correction";
constexpr std::string_view kRollFilters = "filters";
constexpr std::string_view kRollEnabled = "enabled";
constexpr std::string_view kRollLevels[] = {"token", "geometric", "sequence",
                                            "segment"};

RollLevel ReadRollLevel(const BlockReader& reader, std::string_view key) {
  return static_cast<RollLevel>(
      reader.ReadName(key, kRollLevels[0], kRollLevels).value_or(0));
}

void ReadRollWeight(const BlockReader& reader, bool ignore_unknown_fields,
                    RollCorrection* correction,
                    std::vector<std::string>* warnings,
                    Violations* violations) {
  constexpr std::string_view kWeight = "is_weight";
  constexpr std::string_view kUpper = "upper_bound";
  const Struct* const fields = reader.ReadStruct(kWeight);
  if (fields == nullptr) return;
  const BlockReader block(*fields, reader.Path(kWeight), violations);
  block.CheckKeys(
      kRollWeightFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, warnings);
  // A constant has no gradient to detach.
  block.ReadBool("detach", true);
  if (!block.ReadBool(kRollEnabled, false)) return;
  correction->weighs = true;
  correction->level = ReadRollLevel(block, "weight_type");
  constexpr double kDefaultUpper = 1.2;
  if (block.Find(kUpper) == nullptr) {
    correction->upper = kDefaultUpper;
  } else if (const auto upper = block.ReadOptionalNumber(kUpper, kPositive)) {
    correction->upper = *upper;
  }
}

// Adds one bound of a filter if it is enabled.
void ReadRollBound(const BlockReader& block, RollFilter filter,
                   std::string_view kind, double low, double high,
                   RollCorrection* correction) {
  const std::string low_key = Concat(kind, "_low");
  const std::string high_key = Concat(kind, "_high");
  if (!block.ReadBool(Concat(kind, "_enabled"), !filter.is_difference)) return;
  filter.low = block.ReadNumber(low_key, low);
  filter.high = block.ReadNumber(high_key, high,
                                 filter.is_difference ? kAnyNumber : kPositive);
  if (filter.low > filter.high) {
    block.Violate(low_key,
                  Concat(low_key, " ", FormatNumber(filter.low), " is above ",
                         high_key, " ", FormatNumber(filter.high), "."));
    return;
  }
  correction->filters.push_back(filter);
}

void ReadRollFilter(const BlockReader& block, bool ignore_unknown_fields,
                    RollCorrection* correction,
                    std::vector<std::string>* warnings) {
  block.CheckKeys(
      kRollFilterFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, warnings);
  if (!block.ReadBool(kRollEnabled, false)) return;
  RollFilter filter;
  filter.level = ReadRollLevel(block, "agg_type");
  ReadRollBound(block, filter, "ratio", 0.8, 1.2, correction);
  filter.is_difference = true;
  ReadRollBound(block, filter, "diff", -0.2, 0.2, correction);
}

void ReadRollFilters(const BlockReader& reader, bool ignore_unknown_fields,
                     RollCorrection* correction,
                     std::vector<std::string>* warnings,
                     Violations* violations) {
  if (reader.IsNull(kRollFilters)) return;
  const Value& list = *reader.Find(kRollFilters);
  if (list.kind_case() != Value::kListValue) {
    reader.Violate(kRollFilters, Concat(kRollFilters, " must be a list, not ",
                                        Describe(list), "."));
    return;
  }
  const auto& filters = list.list_value().values();
  correction->lists_filters = !filters.empty();
  for (int i = 0; i < filters.size(); ++i) {
    const std::string path =
        Concat(reader.Path(kRollFilters), "[", std::to_string(i), "]");
    if (filters[i].kind_case() != Value::kStructValue) {
      violations->push_back({path, Concat("must be a filter's fields, not ",
                                          Describe(filters[i]), ".")});
      continue;
    }
    const BlockReader block(filters[i].struct_value(), path, violations);
    ReadRollFilter(block, ignore_unknown_fields, correction, warnings);
  }
  constexpr size_t kMost = kernels::kMaxRules;
  if (correction->filters.size() > kMost) {
    reader.Violate(
        kRollFilters,
        Concat(kRollFilters, " have ",
               std::to_string(correction->filters.size()), " bounds; at most ",
               std::to_string(kMost), " are computed."));
    correction->filters.resize(kMost);
  }
}

}  // namespace

std::string_view RollLevelName(RollLevel level) {
  return kRollLevels[static_cast<size_t>(level)];
}

RollCorrection ReadRollCorrection(const BlockReader& reader,
                                  bool ignore_unknown_fields,
                                  Translation* translation) {
  RollCorrection correction;
  const Struct* const fields = reader.ReadStruct(kRollCorrection);
  if (fields == nullptr) return correction;
  const BlockReader block(*fields, reader.Path(kRollCorrection),
                          &translation->violations);
  block.CheckKeys(
      kRollCorrectionFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation->warnings);
  ReadRollWeight(block, ignore_unknown_fields, &correction,
                 &translation->warnings, &translation->violations);
  ReadRollFilters(block, ignore_unknown_fields, &correction,
                  &translation->warnings, &translation->violations);
  return correction;
}

void ApplyRollCorrection(const RollCorrection& correction,
                         Translation* translation) {
  constexpr Level kWeightLevels[] = {Level::kToken, Level::kGeometric,
                                     Level::kSequence, Level::kTurn};
  constexpr Aggregation kRollAggregations[] = {
      Aggregation::kToken, Aggregation::kMean, Aggregation::kSum,
      Aggregation::kTurnMean};
  kernels::CorrectionSpec& spec = translation->spec;
  spec.weight.level = kWeightLevels[static_cast<size_t>(correction.level)];
  spec.weight.bound = kernels::Bound::kTruncate;
  spec.weight.upper = correction.weighs ? correction.upper : 1.0;
  spec.weight.lower = correction.weighs ? 0.0 : 1.0;
  for (const RollFilter& filter : correction.filters) {
    kernels::RejectionRule rule;
    rule.aggregation = kRollAggregations[static_cast<size_t>(filter.level)];
    if (filter.is_difference) {
      rule.estimator = kernels::Estimator::kDifference;
      rule.lower = filter.low;
      rule.upper = filter.high;
    } else {
      rule.lower = kernels::LogRatio(std::max(filter.low, 0.0));
      rule.upper = kernels::LogRatio(filter.high);
    }
    spec.rules[spec.num_rules++] = rule;
    translation->rule_names.push_back(Concat(
        RollLevelName(filter.level), filter.is_difference ? "_diff" : "_ratio",
        "_", std::to_string(spec.num_rules)));
  }
}

}  // namespace counterweight::server
