#include "server/engine/dialects/skyrl_correction.h"

#include <utility>

#include "kernels/float_bounds.h"
#include "kernels/log_ratio.h"
#include "server/engine/dialects/fields.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::Aggregation;
using kernels::Bound;
using kernels::CorrectionSpec;
using kernels::Evaluation;
using kernels::kSafetyClamp;
using kernels::kUnbounded;
using kernels::Level;
using kernels::RejectionRule;
using kernels::WeightSpec;

constexpr std::string_view kUseTis = "use_tis";
constexpr std::string_view kTisTypes[] = {"token", "sequence"};
constexpr std::string_view kSequenceMetrics[] = {"product", "geometric"};

// SkyRL does not check its thresholds; these would reject everything, since
// ratios are clamped.
void CheckInterval(const BlockReader& reader, std::string_view low_key,
                   std::string_view high_key, const SkyrlInterval& interval) {
  constexpr std::string_view kEnd = ": SkyRL would reject everything.";
  const std::string low = Concat(low_key, " ", FormatNumber(interval.low));
  const std::string high = Concat(high_key, " ", FormatNumber(interval.high));
  if (!(interval.high >= kSkyrlLeastRatio)) {
    reader.Violate(high_key,
                   Concat(high, " is below every ratio, the least being ",
                          FormatNumber(kSkyrlLeastRatio), kEnd));
  } else if (!(interval.low <= kSkyrlLargestRatio)) {
    reader.Violate(low_key,
                   Concat(low, " is above every ratio, the largest being ",
                          FormatNumber(kSkyrlLargestRatio), kEnd));
  } else if (!(interval.low <= interval.high)) {
    reader.Violate(low_key, Concat(low, " is above ", high, kEnd));
  }
}

// Reads thresholds that may be null; returns nothing if both are.
std::optional<SkyrlInterval> ReadThresholds(const BlockReader& reader,
                                            std::string_view low_key,
                                            std::string_view high_key) {
  const std::optional<double> low = reader.ReadOptionalNumber(low_key);
  const std::optional<double> high = reader.ReadOptionalNumber(high_key);
  if (!low && !high) return std::nullopt;
  const SkyrlInterval interval = {low.value_or(0.0), high.value_or(kUnbounded)};
  CheckInterval(reader, low_key, high_key, interval);
  return interval;
}

void ReadTokenMask(const BlockReader& reader, SkyrlCorrection* correction,
                   std::vector<std::string>* warnings) {
  constexpr std::string_view kLow = "token_mask_is_threshold_low";
  constexpr std::string_view kHigh = "token_mask_is_threshold_high";
  if (reader.IsNull(kLow) == reader.IsNull(kHigh)) {
    correction->token_mask = ReadThresholds(reader, kLow, kHigh);
    return;
  }
  warnings->push_back(Concat(reader.Path(reader.IsNull(kLow) ? kHigh : kLow),
                             " does nothing alone: SkyRL masks tokens only "
                             "where both of its thresholds are set."));
}

void ReadSequenceMask(const BlockReader& reader, SkyrlCorrection* correction) {
  constexpr std::string_view kMetric = "sequence_mask_metric";
  if (reader.IsNull(kMetric)) return;
  const auto metric =
      reader.ReadName(kMetric, kSequenceMetrics[0], kSequenceMetrics);
  if (!metric) return;
  const bool product = kSequenceMetrics[*metric] == "product";
  const std::string_view low_key =
      product ? "product_mask_low" : "geo_mask_low";
  const std::string_view high_key =
      product ? "product_mask_high" : "geo_mask_high";
  const SkyrlInterval interval = {
      reader.ReadNumber(low_key, product ? 0.5 : 0.99),
      reader.ReadNumber(high_key, product ? 2.0 : 1.01)};
  CheckInterval(reader, low_key, high_key, interval);
  correction->sequence_metric =
      product ? Aggregation::kSum : Aggregation::kMean;
  correction->sequence_mask = interval;
}

double ReadCap(const BlockReader& reader, std::string_view key,
               double missing) {
  const double cap = reader.ReadNumber(key, missing);
  if (!kernels::IsAboveZero(cap)) {
    reader.Violate(key, Concat(key, " must be > 0, but is ", FormatNumber(cap),
                               ": SkyRL takes the lesser of ratio and cap, so "
                               "that no weight would be positive."));
  }
  return cap;
}

void ReadTis(const BlockReader& reader, SkyrlCorrection* correction) {
  constexpr std::string_view kTisType = "tis_ratio_type";
  if (reader.IsNull(kTisType)) return;
  const auto type = reader.ReadName(kTisType, kTisTypes[0], kTisTypes);
  if (!type) return;
  correction->tis_path = reader.Path(kTisType);
  if (kTisTypes[*type] == "token") {
    correction->tis = Level::kToken;
    correction->tis_cap = ReadCap(reader, "token_tis_ratio_clip_high", 2.0);
  } else {
    correction->tis = Level::kSequence;
    correction->tis_cap = ReadCap(reader, "sequence_tis_ratio_clip_high", 5.0);
  }
}

// validate_cfg overwrites tis_ratio_type and its cap with these.
void ReadDeprecatedTis(const BlockReader& reader, SkyrlCorrection* correction,
                       std::vector<std::string>* warnings) {
  constexpr double kDefaultCap = -1.0;
  correction->tis = Level::kToken;
  correction->tis_cap = ReadCap(reader, "tis_imp_ratio_cap", kDefaultCap);
  correction->tis_path = reader.Path(kUseTis);
  warnings->push_back(Concat(
      reader.Path(kUseTis), " is deprecated in SkyRL: use ", kSkyrlCorrection,
      ".tis_ratio_type 'token' and ", "token_tis_ratio_clip_high."));
}

RejectionRule MakeRule(Aggregation aggregation, const SkyrlInterval& interval) {
  RejectionRule rule;
  rule.aggregation = aggregation;
  const bool by_row =
      aggregation == Aggregation::kSum || aggregation == Aggregation::kMean;
  (by_row ? rule.aggregate_clamp : rule.token_clamp) = kSafetyClamp;
  // A bound beyond the clamped ratios excludes nothing.
  rule.lower = interval.low <= kSkyrlLeastRatio
                   ? -kSafetyClamp
                   : kernels::LogRatio(interval.low);
  rule.upper = interval.high >= kSkyrlLargestRatio
                   ? kSafetyClamp
                   : kernels::LogRatio(interval.high);
  return rule;
}

}  // namespace

std::string_view SkyrlRuleName(Aggregation aggregation) {
  return aggregation == Aggregation::kAll     ? "outlier_seq"
         : aggregation == Aggregation::kToken ? "token_mask"
         : aggregation == Aggregation::kSum   ? "product_sequence_mask"
                                              : "geo_sequence_mask";
}

SkyrlCorrection ReadSkyrlCorrection(const BlockReader& reader,
                                    bool ignore_unknown_fields,
                                    Translation* translation) {
  SkyrlCorrection correction;
  const bool use_tis = reader.ReadBool(kUseTis, false);
  if (const Struct* block = reader.ReadStruct(kSkyrlCorrection)) {
    const BlockReader fields(*block, reader.Path(kSkyrlCorrection),
                             &translation->violations);
    fields.CheckKeys(
        kSkyrlCorrectionFields, ignore_unknown_fields,
        [](std::string_view) { return std::string(); }, &translation->warnings);
    correction.outlier =
        ReadThresholds(fields, "outlier_token_is_threshold_low",
                       "outlier_token_is_threshold_high");
    ReadTokenMask(fields, &correction, &translation->warnings);
    if (!use_tis) ReadTis(fields, &correction);
    ReadSequenceMask(fields, &correction);
  }
  if (use_tis) {
    ReadDeprecatedTis(reader, &correction, &translation->warnings);
  }
  return correction;
}

void ApplySkyrlCorrection(const SkyrlCorrection& correction,
                          Translation* translation) {
  CorrectionSpec& spec = translation->spec;
  spec.evaluation = Evaluation::kSequential;
  const auto add = [&](Aggregation aggregation,
                       const std::optional<SkyrlInterval>& interval) {
    if (!interval) return;
    spec.rules[spec.num_rules++] = MakeRule(aggregation, *interval);
    translation->rule_names.emplace_back(SkyrlRuleName(aggregation));
  };
  add(Aggregation::kAll, correction.outlier);
  add(Aggregation::kToken, correction.token_mask);
  if (correction.tis != Level::kNone) {
    WeightSpec& weight = spec.weight;
    weight.level = correction.tis;
    (correction.tis == Level::kToken ? weight.token_clamp
                                     : weight.aggregate_clamp) = kSafetyClamp;
    weight.upper = correction.tis_cap;
    weight.bound = weight.upper == kUnbounded ? Bound::kNone : Bound::kTruncate;
    weight.after_rule = spec.num_rules;
  }
  add(correction.sequence_metric, correction.sequence_mask);
}

}  // namespace counterweight::server
