#include "server/engine/dialects/openrlhf.h"

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/openrlhf_correction.h"
#include "server/engine/dialects/openrlhf_loss.h"
#include "server/engine/dialects/openrlhf_metrics.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;

// This block's name of a field of the command line or of the class.
struct OtherName {
  std::string_view name;
  std::string_view field;
};

constexpr OtherName kOtherNames[] = {
    {"clip_eps_high", "eps_clip_low_high"},
    {"clip_eps_low", "eps_clip_low_high"},
    {"entropy_coef", "entropy_loss_coef"},
};
constexpr OtherName kOldOtherNames[] = {
    {"is_correction_enable", "enable_vllm_is_correction"},
    {"is_correction_threshold", "vllm_is_truncated_threshold"},
    {"is_correction_type", "vllm_is_correction_type"},
};

std::string Hint(std::string_view key, const RequestFacts& facts) {
  for (const OtherName& other : kOtherNames) {
    if (other.name == key) return Concat("here it is '", other.field, "'");
  }
  const bool by_level = facts.IsSince(kOpenrlhfCorrectionByLevel);
  for (const OtherName& other : kOldOtherNames) {
    if (other.name != key) continue;
    return by_level ? Concat("releases before ",
                             ToString(kOpenrlhfCorrectionByLevel),
                             " have it; since, 'is_correction_level' and "
                             "'is_correction_mode' say it")
                    : Concat("here it is '", other.field, "'");
  }
  return {};
}

// Refuses these fields even if unknown ones are ignored: they are known and
// have an effect.
void RefuseFieldsOfOthers(const BlockReader& reader,
                          const RequestFacts& facts) {
  const bool by_level = facts.IsSince(kOpenrlhfCorrectionByLevel);
  for (const std::string_view field : OpenrlhfFieldsOfOthers(facts)) {
    if (reader.Find(field) == nullptr) continue;
    reader.Violate(
        field, Concat(field,
                      by_level ? " is a field of OpenRLHF before "
                               : " is a field of OpenRLHF since ",
                      ToString(kOpenrlhfCorrectionByLevel), ", and ",
                      ToString(facts.asked.release), " is asked for",
                      facts.asked.is_named ? "" : " where no release is named",
                      ": name the release whose block this is, e.g. \"",
                      ToString(by_level ? kOpenrlhfUnbiasedKl
                                        : kOpenrlhfCorrectionByLevel),
                      "\", or use its fields."));
  }
  if (reader.Find("unbiased_gradient") != nullptr &&
      !facts.IsSince(kOpenrlhfUnbiasedKl)) {
    reader.Violate("unbiased_gradient",
                   Concat("unbiased_gradient is a field of OpenRLHF since ",
                          ToString(kOpenrlhfUnbiasedKl), ", and ",
                          ToString(facts.asked.release), " is asked for."));
  }
}

void RefuseEntropyLoss(const BlockReader& reader) {
  constexpr std::string_view kCoefficient = "entropy_loss_coef";
  if (reader.ReadOptionalNumber(kCoefficient).value_or(0.0) == 0.0) return;
  reader.Violate(kCoefficient,
                 "entropy_loss_coef needs the entropies of whole "
                 "distributions, which requests cannot carry; log-probs of "
                 "sampled tokens do not give them.");
}

OpenrlhfPolicy ReadPolicy(const BlockReader& reader) {
  constexpr std::string_view kLossTypes[] = {"ppo", "gspo"};
  OpenrlhfPolicy policy;
  const auto type =
      reader.ReadName("policy_loss_type", kLossTypes[0], kLossTypes);
  policy.is_gspo = type && kLossTypes[*type] == "gspo";
  return policy;
}

}  // namespace

Translation TranslateOpenrlhf(const Struct& block, bool ignore_unknown_fields,
                              const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  std::vector<std::string_view> fields(std::begin(kOpenrlhfFields),
                                       std::end(kOpenrlhfFields));
  for (const auto& more :
       {OpenrlhfCorrectionFields(facts), OpenrlhfFieldsOfOthers(facts)}) {
    fields.insert(fields.end(), more.begin(), more.end());
  }
  reader.CheckKeys(
      fields, ignore_unknown_fields,
      [&](std::string_view key) { return Hint(key, facts); },
      &translation.warnings);
  RefuseFieldsOfOthers(reader, facts);
  RefuseEntropyLoss(reader);
  OpenrlhfPolicy policy = ReadPolicy(reader);
  OpenrlhfCorrection correction = ReadOpenrlhfCorrection(reader, facts);
  policy.corrects = correction.is_on;
  policy.correction_field = correction.field;
  const bool weighs = correction.is_on && !policy.is_gspo;
  if (weighs) {
    const std::string reason = Concat(
        correction.field, " compares old_log_probs with rollout_log_probs");
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", reason,
                  &translation.violations);
    RequireTensor(facts.has_old_log_probs, "old_log_probs", reason,
                  &translation.violations);
    ReadOpenrlhfThreshold(reader, facts, &correction);
    ApplyOpenrlhfCorrection(correction, &translation);
  } else if (!correction.is_on && facts.has_rollout_log_probs) {
    translation.warnings.push_back(
        Concat(reader.Path(correction.field),
               " is off: nothing is corrected, and rollout_log_probs and "
               "old_log_probs are compared for the metrics of the run only."));
  }
  ReadOpenrlhfLoss(reader, policy, facts, &translation);
  translation.spec.drift_source = DriftSource(facts);
  const bool reports_filter =
      weighs && facts.IsSince(kOpenrlhfCorrectionByLevel);
  translation.report =
      [spec = translation.spec, reports_filter, by_row = correction.by_row()](
          const kernels::BatchSums& sums, MetricMap* metrics, Violations*) {
        AddOpenrlhfMetrics(spec, sums, metrics);
        if (reports_filter) AddOpenrlhfFilterRatio(spec, by_row, sums, metrics);
      };
  return translation;
}

}  // namespace counterweight::server
