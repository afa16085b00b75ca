#include "server/engine/dialects/ms_swift_correction.h"

#include <string>
#include <string_view>

#include "kernels/log_ratio.h"
#include "kernels/sums.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using kernels::Bound;
using kernels::kSafetyClamp;
using kernels::Level;
using kernels::RatioSource;
using kernels::RejectionRule;

constexpr std::string_view kMsSwiftMode = "rollout_importance_sampling_mode";
constexpr std::string_view kMsSwiftThreshold =
    "rollout_importance_sampling_threshold";
constexpr std::string_view kMsSwiftLogs = "log_rollout_offpolicy_metrics";
constexpr std::string_view kMsSwiftOpsm = "off_policy_sequence_mask_delta";

void AddWeight(const MsSwiftCorrection& correction, RatioSource source,
               Translation* translation) {
  kernels::CorrectionSpec& spec = translation->spec;
  kernels::WeightSpec& weight = spec.weight;
  weight.source = source;
  weight.token_clamp = kSafetyClamp;
  weight.level = correction.mode == MsSwiftMode::kSequenceTruncate
                     ? Level::kGeometric
                     : Level::kToken;
  if (correction.mode != MsSwiftMode::kSequenceMask) {
    weight.bound = correction.mode == MsSwiftMode::kTokenMask
                       ? Bound::kMask
                       : Bound::kTruncate;
    weight.upper = correction.threshold;
    return;
  }
  RejectionRule rule;
  rule.source = source;
  rule.aggregation = kernels::Aggregation::kMean;
  rule.token_clamp = kSafetyClamp;
  rule.effect = kernels::Effect::kZeroWeight;
  rule.upper = kernels::LogRatio(correction.threshold);
  spec.rules[spec.num_rules++] = rule;
  translation->rule_names.emplace_back("sequence_mask");
}

void AddOpsm(double delta, const RequestFacts& facts,
             Translation* translation) {
  const std::string path = Concat("method.dialect.block.", kMsSwiftOpsm);
  if (!facts.wants_loss) {
    translation->warnings.push_back(
        Concat(path, " does nothing here: only the loss has that mask."));
    return;
  }
  if (!facts.has_rollout_log_probs && !facts.has_old_log_probs) {
    translation->warnings.push_back(
        Concat(path,
               " does nothing: there are neither rollout_log_probs nor "
               "old_log_probs."));
    return;
  }
  RejectionRule rule;
  rule.source = facts.has_rollout_log_probs ? RatioSource::kCurrentRollout
                                            : RatioSource::kCurrentOld;
  rule.aggregation = kernels::Aggregation::kMean;
  rule.condition = kernels::Condition::kNegativeAdvantage;
  rule.lower = -delta;
  kernels::CorrectionSpec& spec = translation->spec;
  spec.rules[spec.num_rules++] = rule;
  translation->rule_names.emplace_back("off_policy_sequence_mask");
}

}  // namespace

MsSwiftCorrection ReadMsSwiftCorrection(const BlockReader& reader,
                                        const RequestFacts& facts,
                                        Translation* translation) {
  constexpr std::string_view kModes[] = {"token_truncate", "token_mask",
                                         "sequence_truncate", "sequence_mask"};
  MsSwiftCorrection correction;
  correction.threshold = reader.ReadNumber(kMsSwiftThreshold, 2.0, kPositive);
  correction.opsm_delta = reader.ReadOptionalNumber(kMsSwiftOpsm, kNonNegative);
  bool is_asked = reader.ReadBool(kMsSwiftLogs, false);
  if (!reader.IsNull(kMsSwiftMode)) {
    const auto mode = reader.ReadName(kMsSwiftMode, kModes[0], kModes);
    correction.mode = static_cast<MsSwiftMode>(mode.value_or(0));
    is_asked = true;
  }
  if (!is_asked) return correction;
  if (facts.has_rollout_log_probs) {
    correction.measures = true;
    RequireTensor(facts.has_old_log_probs || facts.has_current_log_probs,
                  "old_log_probs", "rollout_log_probs are compared with it",
                  &translation->violations);
    return correction;
  }
  correction.mode = MsSwiftMode::kNone;
  translation->warnings.push_back(Concat(
      reader.Path(reader.IsNull(kMsSwiftMode) ? kMsSwiftLogs : kMsSwiftMode),
      " does nothing without rollout_log_probs: nothing is corrected "
      "or measured."));
  return correction;
}

void ApplyMsSwiftCorrection(const MsSwiftCorrection& correction,
                            RatioSource source, const RequestFacts& facts,
                            Translation* translation) {
  if (correction.weighs()) AddWeight(correction, source, translation);
  if (correction.opsm_delta) {
    AddOpsm(*correction.opsm_delta, facts, translation);
  }
}

}  // namespace counterweight::server
