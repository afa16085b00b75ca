#include "server/engine/dialects/slime_correction.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::Bound;
using kernels::kSafetyClamp;
using kernels::kUnbounded;
using kernels::Level;
using kernels::RejectionRule;
using kernels::WeightSpec;

constexpr std::string_view kSlimeUseTis = "use_tis";
constexpr std::string_view kSlimeFunction = "custom_tis_function_path";
constexpr std::string_view kSlimeMetrics = "get_mismatch_metrics";
constexpr std::string_view kSlimeNormalize = "tis_batch_normalize";
constexpr std::string_view kSlimeTisLower = "tis_lower_bound";
constexpr std::string_view kSlimeTisUpper = "tis_upper_bound";
constexpr std::string_view kSlimeUseRs = "use_rs";
constexpr std::string_view kSlimeRsLower = "rs_lower_bound";
constexpr std::string_view kSlimeRsUpper = "rs_upper_bound";
constexpr std::string_view kSlimeVeto = "rs_veto_threshold";

constexpr std::string_view kSlimeModes[] = {"truncate", "clip", "mask"};
constexpr std::string_view kSlimeLevels[] = {"token", "sequence", "geometric"};
constexpr Level kSlimeLevelOf[] = {Level::kToken, Level::kSequence,
                                   Level::kGeometric};

SlimeFunction ReadFunction(const BlockReader& reader,
                           const SlimeSystem& system) {
  if (reader.IsNull(kSlimeFunction)) return SlimeFunction::kTis;
  const std::string_view names[] = {system.icepop, system.mis};
  const auto index =
      reader.ReadName(kSlimeFunction, names[0], names,
                      " Other functions are code, which a server cannot run.");
  return index.value_or(1) == 0 ? SlimeFunction::kIcepop : SlimeFunction::kMis;
}

Level ReadSlimeLevel(const BlockReader& reader, std::string_view key) {
  return kSlimeLevelOf[reader.ReadName(key, kSlimeLevels[0], kSlimeLevels)
                           .value_or(0)];
}

// Refuses what the system asserts, and bounds outside of every clamped ratio.
void CheckBounds(const BlockReader& reader, std::string_view low_key,
                 const SlimeInterval& bounds) {
  if (!(bounds.low < bounds.high)) {
    reader.Violate(
        low_key,
        Concat(low_key, " ", FormatNumber(bounds.low),
               " must be below the upper bound, ", FormatNumber(bounds.high),
               ", where both are used; null takes the default."));
  } else if (bounds.low > std::exp(kSafetyClamp) ||
             bounds.high < std::exp(-kSafetyClamp)) {
    reader.Violate(
        low_key, Concat("no ratio is within [", FormatNumber(bounds.low), ", ",
                        FormatNumber(bounds.high),
                        "]: ratios are clamped at 20 nats, and "
                        "everything would be rejected."));
  }
}

void ReadTis(const BlockReader& reader, SlimeCorrection* correction) {
  constexpr std::string_view kLow = "tis_clip_low";
  constexpr std::string_view kHigh = "tis_clip";
  SlimeInterval& bounds = correction->bounds;
  bounds.low = std::max(reader.ReadNumber(kLow, 0.0), 0.0);
  bounds.high = reader.ReadNumber(kHigh, 2.0, kPositive);
  if (bounds.low > bounds.high) {
    reader.Violate(
        kLow, Concat(kLow, " ", FormatNumber(bounds.low), " is above ", kHigh,
                     " ", FormatNumber(bounds.high),
                     ": no weight would depend on its ratio."));
  }
}

void ReadRejection(const BlockReader& reader, const SlimeInterval& tis,
                   SlimeCorrection* correction) {
  correction->rs_level = ReadSlimeLevel(reader, "rs_level");
  SlimeInterval rs;
  rs.low = reader.ReadOptionalNumber(kSlimeRsLower).value_or(tis.low);
  rs.high =
      reader.ReadOptionalNumber(kSlimeRsUpper, kPositive).value_or(tis.high);
  CheckBounds(reader, kSlimeRsLower, rs);
  correction->rs = rs;
  correction->veto = reader.ReadOptionalNumber(kSlimeVeto, kPositive);
}

void ReadMis(const BlockReader& reader, SlimeCorrection* correction,
             std::vector<std::string>* warnings) {
  const auto mode = reader.ReadName("tis_mode", kSlimeModes[0], kSlimeModes);
  correction->mode = static_cast<SlimeTisMode>(mode.value_or(0));
  correction->level = ReadSlimeLevel(reader, "tis_level");
  correction->normalizes = reader.ReadBool(kSlimeNormalize, false);
  SlimeInterval& bounds = correction->bounds;
  bounds.high = reader.ReadNumber(kSlimeTisUpper, 2.0, kPositive);
  bounds.low =
      reader.ReadOptionalNumber(kSlimeTisLower).value_or(1.0 / bounds.high);
  if (!correction->weighs) {
    if (reader.ReadBool(kSlimeUseRs, false)) {
      warnings->push_back(
          Concat(reader.Path(kSlimeUseRs), " does nothing without use_tis."));
    }
    return;
  }
  if (correction->mode != SlimeTisMode::kTruncate) {
    CheckBounds(reader, kSlimeTisLower, bounds);
  }
  if (correction->normalizes && correction->level == Level::kGeometric) {
    reader.Violate(kSlimeNormalize,
                   "tis_batch_normalize is for tis_level 'token' and "
                   "'sequence'.");
  }
  if (reader.ReadBool(kSlimeUseRs, false)) {
    ReadRejection(reader, bounds, correction);
  } else if (!reader.IsNull(kSlimeVeto)) {
    warnings->push_back(
        Concat(reader.Path(kSlimeVeto), " does nothing without use_rs."));
  }
}

// A bound beyond the clamped ratios excludes nothing.
RejectionRule MakeRule(Level level, const SlimeInterval& interval) {
  RejectionRule rule;
  rule.aggregation = level == Level::kToken      ? Aggregation::kToken
                     : level == Level::kSequence ? Aggregation::kSum
                                                 : Aggregation::kMean;
  (level == Level::kToken ? rule.token_clamp : rule.aggregate_clamp) =
      kSafetyClamp;
  rule.lower =
      std::max(kernels::LogRatio(std::max(interval.low, 0.0)), -kSafetyClamp);
  rule.upper = std::min(kernels::LogRatio(interval.high), kSafetyClamp);
  return rule;
}

void ApplyWeight(const SlimeCorrection& correction, WeightSpec* weight) {
  weight->level = correction.level;
  weight->upper = correction.bounds.high;
  if (correction.function != SlimeFunction::kMis) {
    weight->bound = correction.function == SlimeFunction::kTis
                        ? Bound::kTruncate
                        : Bound::kMask;
    weight->lower = correction.bounds.low;
    return;
  }
  (correction.level == Level::kToken ? weight->token_clamp
                                     : weight->aggregate_clamp) = kSafetyClamp;
  weight->normalize = correction.normalizes;
  weight->counts_empty_rows = weight->normalize;
  if (correction.mode == SlimeTisMode::kMask) {
    weight->upper = kUnbounded;
    return;
  }
  weight->bound = Bound::kTruncate;
  if (correction.mode == SlimeTisMode::kClip) {
    weight->lower = std::max(correction.bounds.low, 0.0);
  }
}

}  // namespace

SlimeCorrection ReadSlimeCorrection(const BlockReader& reader,
                                    const SlimeSystem& system,
                                    Translation* translation) {
  SlimeCorrection correction;
  correction.weighs = reader.ReadBool(kSlimeUseTis, false);
  const bool asks_metrics = reader.ReadBool(kSlimeMetrics, false);
  correction.measures = correction.weighs || asks_metrics;
  correction.function = ReadFunction(reader, system);
  if (asks_metrics && reader.IsNull(kSlimeFunction)) {
    reader.Violate(kSlimeFunction,
                   Concat(kSlimeFunction, " must be set with ", kSlimeMetrics,
                          ": its metrics are asked for."));
  }
  if (asks_metrics && !correction.weighs &&
      correction.function == SlimeFunction::kIcepop) {
    reader.Violate(kSlimeMetrics,
                   "icepop_function weighs the loss even where only its "
                   "metrics are asked for; set use_tis if that is meant.");
  }
  if (correction.weighs && reader.ReadBool("use_rollout_logprobs", false)) {
    reader.Violate(kSlimeUseTis,
                   "use_tis and use_rollout_logprobs exclude each other: both "
                   "correct the drift from the rollout policy.");
  }
  if (!correction.measures) {
    if (!reader.IsNull(kSlimeFunction)) {
      translation->warnings.push_back(
          Concat(reader.Path(kSlimeFunction),
                 " does nothing without use_tis: the loss goes uncorrected."));
    }
    return correction;
  }
  if (correction.function == SlimeFunction::kMis) {
    ReadMis(reader, &correction, &translation->warnings);
  } else {
    ReadTis(reader, &correction);
  }
  return correction;
}

void ApplySlimeCorrection(const SlimeCorrection& correction,
                          const SlimePolicies& policies,
                          const RequestFacts& facts, Translation* translation) {
  if (!correction.measures) return;
  RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs",
                "use_tis and get_mismatch_metrics compare with it",
                &translation->violations);
  if (policies.rollout_is_old && !policies.current_is_old) {
    RequireTensor(facts.has_old_log_probs, "old_log_probs",
                  "get_mismatch_metrics compares it with rollout_log_probs",
                  &translation->violations);
  }
  if (!correction.weighs) return;
  kernels::CorrectionSpec& spec = translation->spec;
  const auto add = [&](RejectionRule rule, std::string_view name) {
    rule.source = policies.Correction();
    spec.rules[spec.num_rules++] = rule;
    translation->rule_names.emplace_back(name);
  };
  if (correction.MasksByWeight()) {
    add(MakeRule(correction.level, correction.bounds), "tis_mask");
  }
  if (correction.rs) add(MakeRule(correction.rs_level, *correction.rs), "rs");
  if (correction.veto) {
    RejectionRule veto;
    veto.aggregation = Aggregation::kAll;
    veto.lower = kernels::LogRatio(*correction.veto);
    add(veto, "rs_veto");
  }
  spec.weight.source = policies.Correction();
  ApplyWeight(correction, &spec.weight);
}

}  // namespace counterweight::server
