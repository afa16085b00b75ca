#include "server/engine/dialects/nemo_rl_correction.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/log_ratio.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::Level;

constexpr std::string_view kNemoRlWeighs = "use_importance_sampling_correction";
constexpr std::string_view kNemoRlType = "truncated_importance_sampling_type";
constexpr std::string_view kNemoRlHigh = "truncated_importance_sampling_ratio";
constexpr std::string_view kNemoRlLow =
    "truncated_importance_sampling_ratio_min";
constexpr std::string_view kNemoRlTypes[] = {"tis", "icepop", "seq-mask-tis"};

void ReadBounds(const BlockReader& reader, NemoRlCorrection* correction) {
  const auto high = reader.ReadOptionalNumber(kNemoRlHigh, kPositive);
  if (!high && reader.IsNull(kNemoRlHigh)) {
    reader.Violate(kNemoRlHigh, Concat(kNemoRlHigh, " must be positive with ",
                                       kNemoRlType, "."));
  }
  const auto low = reader.ReadOptionalNumber(kNemoRlLow);
  if (!low && correction->Rejects() && reader.IsNull(kNemoRlLow)) {
    reader.Violate(kNemoRlLow,
                   Concat(kNemoRlLow, " must be set with ", kNemoRlType,
                          " 'icepop' and "
                          "'seq-mask-tis'."));
  }
  correction->high = high.value_or(kernels::kUnbounded);
  correction->low = std::max(low.value_or(0.0), 0.0);
  if (correction->low > correction->high) {
    reader.Violate(
        kNemoRlLow,
        Concat(kNemoRlLow, " ", FormatNumber(correction->low), " is above ",
               kNemoRlHigh, " ", FormatNumber(correction->high), "."));
  }
}

// A rule of the statistic that the truncation judges.
kernels::RejectionRule MakeRule(const NemoRlCorrection& correction,
                                kernels::RatioSource source) {
  kernels::RejectionRule rule;
  rule.source = source;
  rule.aggregation =
      correction.truncation == NemoRlTruncation::kSeqMaskTis
          ? Aggregation::kMean
          : (correction.by_sequence ? Aggregation::kSum : Aggregation::kToken);
  rule.lower = kernels::LogRatio(correction.low);
  rule.upper = kernels::LogRatio(correction.high);
  return rule;
}

}  // namespace

NemoRlCorrection ReadNemoRlCorrection(const BlockReader& reader,
                                      std::vector<std::string>* warnings) {
  NemoRlCorrection correction;
  correction.weighs = reader.ReadBool(kNemoRlWeighs, false);
  correction.by_sequence =
      reader.ReadBool("sequence_level_importance_ratios", false);
  if (reader.IsNull(kNemoRlType)) {
    if (!reader.IsNull(kNemoRlHigh)) {
      reader.Violate(kNemoRlHigh,
                     Concat(kNemoRlHigh, " needs a ", kNemoRlType, ", one of ",
                            JoinNames(kNemoRlTypes), "."));
    }
    if (!reader.IsNull(kNemoRlLow)) {
      warnings->push_back(Concat(reader.Path(kNemoRlLow),
                                 " does nothing without ", kNemoRlType, "."));
    }
  } else {
    const auto type =
        reader.ReadName(kNemoRlType, kNemoRlTypes[0], kNemoRlTypes);
    correction.truncation = static_cast<NemoRlTruncation>(type.value_or(0));
    if (!correction.weighs) {
      reader.Violate(kNemoRlType,
                     Concat(kNemoRlType, " is for ", kNemoRlWeighs, ": true."));
    }
    if (correction.by_sequence &&
        correction.truncation == NemoRlTruncation::kSeqMaskTis) {
      reader.Violate(kNemoRlType,
                     "seq-mask-tis has weights of tokens; it goes without "
                     "sequence_level_importance_ratios.");
    }
    ReadBounds(reader, &correction);
  }
  if (correction.weighs && correction.by_sequence) {
    warnings->push_back(Concat(
        reader.Path("sequence_level_importance_ratios"),
        " makes the weight the product of the row's ratios of old and rollout "
        "policy, and the policy's ratio the geometric mean of its own."));
  }
  return correction;
}

void ApplyNemoRlCorrection(const NemoRlCorrection& correction,
                           kernels::RatioSource source, bool has_compared,
                           Translation* translation) {
  if (!correction.weighs && !has_compared) return;
  kernels::CorrectionSpec& spec = translation->spec;
  spec.weight.source = source;
  spec.weight.level = correction.weighs && correction.by_sequence
                          ? Level::kSequence
                          : Level::kToken;
  if (!correction.weighs) {
    spec.weight.bound = kernels::Bound::kTruncate;
    spec.weight.lower = spec.weight.upper = 1.0;
    return;
  }
  if (correction.truncation == NemoRlTruncation::kTis) {
    spec.weight.bound = kernels::Bound::kTruncate;
    spec.weight.lower = correction.low;
    spec.weight.upper = correction.high;
  }
  if (!correction.Rejects()) return;
  const std::string_view type =
      kNemoRlTypes[static_cast<size_t>(correction.truncation)];
  for (const auto& [effect, name] :
       {std::pair{kernels::Effect::kZeroWeight, "_weight"},
        std::pair{kernels::Effect::kDrop, "_mask"}}) {
    kernels::RejectionRule& rule = spec.rules[spec.num_rules++];
    rule = MakeRule(correction, source);
    rule.effect = effect;
    translation->rule_names.push_back(Concat(type, name));
  }
}

}  // namespace counterweight::server
