#include "server/dialects/openrlhf.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/log_ratio.h"
#include "server/dialects/block_reader.h"
#include "server/dialects/openrlhf_loss.h"
#include "server/dialects/openrlhf_metrics.h"
#include "server/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::Aggregation;
using kernels::Bound;
using kernels::CorrectionSpec;
using kernels::kUnbounded;
using kernels::Level;
using kernels::WeightSpec;

constexpr std::string_view kCorrectionType = "vllm_is_correction_type";
constexpr std::string_view kThreshold = "vllm_is_truncated_threshold";

// PolicyLoss's arguments, those of its call, and of algo.kl and the actor what
// the actor's loss reads.
constexpr std::string_view kFields[] = {
    "batch_num_tokens",  "dp_size",
    "dual_clip",         "enable_vllm_is_correction",
    "entropy_loss_coef", "eps_clip",
    "eps_clip_low_high", "global_batch_size",
    "init_kl_coef",      "kl_estimator",
    "policy_loss_type",  "token_level_loss",
    "use_kl_loss",       kCorrectionType,
    kThreshold};

// What a field of the command line or of the class is called here.
struct OtherName {
  std::string_view name;
  std::string_view field;
};

constexpr OtherName kOtherNames[] = {
    {"clip_eps_high", "eps_clip_low_high"},
    {"clip_eps_low", "eps_clip_low_high"},
    {"entropy_coef", "entropy_loss_coef"},
    {"is_correction_enable", "enable_vllm_is_correction"},
    {"is_correction_threshold", kThreshold},
    {"is_correction_type", kCorrectionType},
};

std::string Hint(std::string_view key) {
  for (const OtherName& other : kOtherNames) {
    if (other.name == key) return Concat("here it is '", other.field, "'");
  }
  return {};
}

// vllm_is_correction_type.
struct Correction {
  std::string_view name;
  // The threshold bounds the token's weight, or if kNone the rule's ratio.
  Bound bound;
  Aggregation aggregation;
};

constexpr Correction kCorrections[] = {
    {"tis", Bound::kTruncate, Aggregation::kToken},
    {"icepop", Bound::kMask, Aggregation::kToken},
    {"seq-mask-tis", Bound::kNone, Aggregation::kMean},
    {"reinforce_pro", Bound::kNone, Aggregation::kPrefixMean},
};

void RefuseEntropyLoss(const BlockReader& reader) {
  constexpr std::string_view kCoefficient = "entropy_loss_coef";
  if (reader.ReadOptionalNumber(kCoefficient).value_or(0.0) == 0.0) return;
  reader.Violate(kCoefficient,
                 "entropy_loss_coef needs the entropies of whole "
                 "distributions, which requests cannot carry; log-probs of "
                 "sampled tokens do not give them.");
}

// Checked where nothing is corrected too, as PolicyLoss does. Null if it is
// none.
const Correction* ReadCorrection(const BlockReader& reader) {
  std::vector<std::string_view> names;
  for (const Correction& correction : kCorrections) {
    names.push_back(correction.name);
  }
  const auto index = reader.ReadName(kCorrectionType, names[0], names);
  return index ? &kCorrections[*index] : nullptr;
}

OpenrlhfInterval ReadThreshold(const BlockReader& reader) {
  constexpr OpenrlhfInterval kDefault = {0.5, 5.0};
  if (reader.Find(kThreshold) == nullptr) return kDefault;
  const auto threshold = ReadOpenrlhfPair(reader, kThreshold);
  if (!threshold) return kDefault;
  if (!(threshold->high > 0.0) || threshold->low > threshold->high ||
      threshold->low > std::numeric_limits<float>::max()) {
    reader.Violate(kThreshold,
                   Concat(kThreshold, " [", FormatNumber(threshold->low), ", ",
                          FormatNumber(threshold->high),
                          "] must be [low, high] with low <= high, low within "
                          "float32's range and high > 0: no ratio is inside."));
    return kDefault;
  }
  return *threshold;
}

// Neither weights nor ratios are clamped.
void ApplyCorrection(const Correction& correction,
                     const OpenrlhfInterval& threshold,
                     Translation* translation) {
  CorrectionSpec& spec = translation->spec;
  WeightSpec& weight = spec.weight;
  weight.level = Level::kToken;
  translation->has_weights = true;
  const double low = std::max(threshold.low, 0.0);
  if (low == 0.0 && threshold.high == kUnbounded) return;
  if (correction.bound != Bound::kNone) {
    weight.bound = correction.bound;
    weight.lower = low;
    weight.upper = threshold.high;
    return;
  }
  kernels::RejectionRule& rule = spec.rules[spec.num_rules++];
  rule.aggregation = correction.aggregation;
  rule.effect = kernels::Effect::kZeroWeight;
  rule.lower = kernels::LogRatio(low);
  rule.upper = kernels::LogRatio(threshold.high);
  translation->rule_names.emplace_back(correction.name);
}

OpenrlhfPolicy ReadPolicy(const BlockReader& reader) {
  constexpr std::string_view kLossTypes[] = {"ppo", "gspo"};
  OpenrlhfPolicy policy;
  const auto type =
      reader.ReadName("policy_loss_type", kLossTypes[0], kLossTypes);
  policy.is_gspo = type && kLossTypes[*type] == "gspo";
  policy.corrects = reader.ReadBool("enable_vllm_is_correction", false);
  return policy;
}

}  // namespace

Translation TranslateOpenrlhf(const Struct& block, bool ignore_unknown_fields,
                              const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(kFields, ignore_unknown_fields, Hint, &translation.warnings);
  RefuseEntropyLoss(reader);
  const OpenrlhfPolicy policy = ReadPolicy(reader);
  const Correction* correction = ReadCorrection(reader);
  if (policy.corrects && !policy.is_gspo) {
    constexpr std::string_view kReason =
        "enable_vllm_is_correction compares old_log_probs with "
        "rollout_log_probs";
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                  &translation.violations);
    RequireTensor(facts.has_old_log_probs, "old_log_probs", kReason,
                  &translation.violations);
    const OpenrlhfInterval threshold = ReadThreshold(reader);
    if (correction != nullptr) {
      ApplyCorrection(*correction, threshold, &translation);
    }
  }
  ReadOpenrlhfLoss(reader, policy, facts, &translation);
  translation.spec.drift_source = DriftSource(facts);
  translation.report = [spec = translation.spec](const kernels::BatchSums& sums,
                                                 MetricMap* metrics,
                                                 Violations*) {
    AddOpenrlhfMetrics(spec, sums, metrics);
  };
  return translation;
}

}  // namespace counterweight::server
