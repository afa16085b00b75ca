#include "server/engine/dialects/openrlhf_correction.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/float_bounds.h"
#include "kernels/log_ratio.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/openrlhf_loss.h"
#include "server/engine/dialects/releases.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;
using kernels::Aggregation;
using kernels::Bound;
using kernels::Estimator;
using kernels::kUnbounded;
using kernels::Level;

constexpr std::string_view kEnable = "enable_vllm_is_correction";
constexpr std::string_view kType = "vllm_is_correction_type";
constexpr std::string_view kOldThreshold = "vllm_is_truncated_threshold";
constexpr std::string_view kLevel = "is_correction_level";
constexpr std::string_view kMode = "is_correction_mode";
constexpr std::string_view kGating = "is_correction_gating";
constexpr std::string_view kThreshold = "is_correction_threshold";

bool IsByLevel(const RequestFacts& facts) {
  return facts.IsSince(kOpenrlhfCorrectionByLevel);
}

// vllm_is_correction_type.
struct OldType {
  std::string_view name;
  Aggregation aggregation;
  bool clips;
};

constexpr OldType kOldTypes[] = {
    {"tis", Aggregation::kToken, true},
    {"icepop", Aggregation::kToken, false},
    {"seq-mask-tis", Aggregation::kMean, false},
    {"reinforce_pro", Aggregation::kPrefixMean, false},
};

void CheckRatios(const BlockReader& reader, std::string_view key, double low,
                 double high) {
  if (kernels::IsAboveZero(high) && low <= high &&
      low <= std::numeric_limits<float>::max()) {
    return;
  }
  reader.Violate(key,
                 Concat(key, " [", FormatNumber(low), ", ", FormatNumber(high),
                        "] must be [low, high] with low <= high, low within "
                        "float32's range and high > 0: no ratio is inside."));
}

OpenrlhfCorrection ReadOld(const BlockReader& reader) {
  OpenrlhfCorrection correction;
  correction.field = kEnable;
  correction.is_on = reader.ReadBool(kEnable, false);
  // Checked even without a correction, like PolicyLoss.
  std::vector<std::string_view> names;
  for (const OldType& type : kOldTypes) names.push_back(type.name);
  const auto index = reader.ReadName(kType, names[0], names);
  const OldType& type = kOldTypes[index.value_or(0)];
  correction.name = type.name;
  correction.aggregation = type.aggregation;
  correction.clips = type.clips;
  return correction;
}

void ReadOldThreshold(const BlockReader& reader,
                      OpenrlhfCorrection* correction) {
  if (reader.Find(kOldThreshold) == nullptr) return;
  const auto pair = ReadOpenrlhfPair(reader, kOldThreshold);
  if (!pair) return;
  correction->low = pair->low;
  correction->high = pair->high;
  CheckRatios(reader, kOldThreshold, pair->low, pair->high);
}

// [low, high], or [high] for [0, high].
void ReadNewThreshold(const BlockReader& reader,
                      OpenrlhfCorrection* correction) {
  const Value* value = reader.Find(kThreshold);
  if (value == nullptr) return;
  const auto& ends = value->list_value().values();
  const bool are_numbers =
      value->has_list_value() &&
      std::all_of(ends.begin(), ends.end(), [](const Value& end) {
        return end.has_number_value() && !std::isnan(end.number_value());
      });
  if (!are_numbers || ends.empty() || ends.size() > 2) {
    reader.Violate(kThreshold,
                   Concat(kThreshold,
                          " must be a list of one or two numbers, [high] or "
                          "[low, high], got ",
                          Describe(*value), "."));
    return;
  }
  correction->high = ends[ends.size() - 1].number_value();
  correction->low = ends.size() == 2 ? ends[0].number_value() : 0.0;
}

void CheckNewThreshold(const BlockReader& reader, std::string_view gating,
                       const OpenrlhfCorrection& correction) {
  if (correction.estimator == Estimator::kRatio) {
    CheckRatios(reader, kThreshold, correction.low, correction.high);
    return;
  }
  if (correction.low > 0.0) {
    reader.Violate(kThreshold,
                   Concat(kGating, " '", gating,
                          "' takes an upper bound only, [high]; with ",
                          FormatNumber(correction.low),
                          " as the lower one the tokens that agree would be "
                          "masked."));
  } else if (!(correction.high >= 0.0)) {
    reader.Violate(kThreshold,
                   Concat(kThreshold, " must be >= 0 with ", kGating, " '",
                          gating, "': no divergence is below ",
                          FormatNumber(correction.high), "."));
  }
}

OpenrlhfCorrection ReadNew(const BlockReader& reader) {
  constexpr std::string_view kLevels[] = {"off", "token", "seq"};
  constexpr std::string_view kModes[] = {"mask", "clip"};
  constexpr std::string_view kGatings[] = {"ratio", "binary_kl", "tv"};
  constexpr Estimator kEstimators[] = {Estimator::kRatio, Estimator::kBinaryKl,
                                       Estimator::kTotalVariation};
  OpenrlhfCorrection correction;
  correction.field = kLevel;
  const auto level = reader.ReadName(kLevel, kLevels[0], kLevels);
  const auto mode = reader.ReadName(kMode, kModes[0], kModes);
  const size_t gating =
      reader.ReadName(kGating, kGatings[0], kGatings).value_or(0);
  correction.is_on = level.value_or(0) > 0;
  const bool by_row = level == 2;
  correction.clips = mode == 1;
  correction.estimator = kEstimators[gating];
  correction.aggregation = by_row ? Aggregation::kMean : Aggregation::kToken;
  correction.name =
      correction.estimator != Estimator::kRatio ? kGatings[gating] : kLevels[2];
  if (correction.clips && by_row) {
    reader.Violate(kMode,
                   "is_correction_mode 'clip' is for "
                   "is_correction_level 'token': a row's mean clips no "
                   "token's weight.");
  }
  // OpenRLHF refuses it even without a correction.
  if (correction.clips && correction.estimator != Estimator::kRatio) {
    reader.Violate(kMode, Concat("is_correction_mode 'clip' is for ", kGating,
                                 " 'ratio': a weight cannot be clipped to a "
                                 "divergence."));
  }
  ReadNewThreshold(reader, &correction);
  if (correction.is_on) {
    CheckNewThreshold(reader, kGatings[gating], correction);
  }
  return correction;
}

}  // namespace

std::span<const std::string_view> OpenrlhfCorrectionFields(
    const RequestFacts& facts) {
  if (IsByLevel(facts)) return kOpenrlhfNewFields;
  return kOpenrlhfOldFields;
}

std::span<const std::string_view> OpenrlhfFieldsOfOthers(
    const RequestFacts& facts) {
  if (IsByLevel(facts)) return kOpenrlhfOldFields;
  return std::span(kOpenrlhfNewFields).first(std::size(kOpenrlhfNewFields) - 1);
}

OpenrlhfCorrection ReadOpenrlhfCorrection(const BlockReader& reader,
                                          const RequestFacts& facts) {
  return IsByLevel(facts) ? ReadNew(reader) : ReadOld(reader);
}

void ReadOpenrlhfThreshold(const BlockReader& reader, const RequestFacts& facts,
                           OpenrlhfCorrection* correction) {
  if (!IsByLevel(facts)) ReadOldThreshold(reader, correction);
}

void ApplyOpenrlhfCorrection(const OpenrlhfCorrection& correction,
                             Translation* translation) {
  kernels::CorrectionSpec& spec = translation->spec;
  kernels::WeightSpec& weight = spec.weight;
  weight.level = Level::kToken;
  const double low = std::max(correction.low, 0.0);
  if (low == 0.0 && correction.high == kUnbounded) return;
  const bool is_ratio = correction.estimator == Estimator::kRatio;
  if (is_ratio && correction.aggregation == Aggregation::kToken) {
    weight.bound = correction.clips ? Bound::kTruncate : Bound::kMask;
    weight.lower = low;
    weight.upper = correction.high;
    return;
  }
  kernels::RejectionRule& rule = spec.rules[spec.num_rules++];
  rule.estimator = correction.estimator;
  rule.aggregation = correction.aggregation;
  rule.effect = kernels::Effect::kZeroWeight;
  if (is_ratio) {
    rule.lower = kernels::LogRatio(low);
    rule.upper = kernels::LogRatio(correction.high);
  } else {
    rule.upper = correction.high;
  }
  translation->rule_names.emplace_back(correction.name);
}

}  // namespace counterweight::server
