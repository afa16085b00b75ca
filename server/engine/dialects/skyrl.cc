#include "server/engine/dialects/skyrl.h"

#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/request_tensors.h"
#include "server/engine/dialects/skyrl_correction.h"
#include "server/engine/dialects/skyrl_loss.h"
#include "server/engine/dialects/skyrl_metrics.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;

constexpr std::string_view kSupportReplay = "enable_sample_support_replay";

void RefuseEntropyCoefficient(const BlockReader& reader) {
  constexpr std::string_view kUseEntropy = "use_entropy_loss";
  if (!reader.ReadBool(kUseEntropy, false)) return;
  reader.Violate(kUseEntropy,
                 "use_entropy_loss needs the entropies of whole distributions, "
                 "which requests cannot carry; log-probs of sampled tokens do "
                 "not give them.");
}

void CheckSupportReplay(const BlockReader& reader, const RequestFacts& facts,
                        std::vector<std::string>* warnings) {
  RefuseNewSkyrlField(reader, kSupportReplay, facts);
  if (!reader.ReadBool(kSupportReplay, false)) return;
  warnings->push_back(
      Concat(reader.Path(kSupportReplay),
             ": the trainer's log-probs must be those over the sampler's "
             "recorded support, as SkyRL's workers renormalise them; a request "
             "cannot show whether they are."));
}

void AddCorrection(const BlockReader& reader, const SkyrlLoss& loss,
                   const SkyrlCorrection& correction, const RequestFacts& facts,
                   Translation* translation) {
  if (!correction.IsEnabled()) return;
  const std::string path = reader.Path(kSkyrlCorrection);
  if (!loss.takes_correction) {
    const bool is_refused = loss.surrogate == kernels::Surrogate::kClipCov ||
                            loss.surrogate == kernels::Surrogate::kKlCov;
    if (is_refused && correction.HasTisOrSequenceMask()) {
      reader.Violate("policy_loss_type",
                     Concat("policy_loss_type '", loss.name,
                            "' does not support ", kSkyrlCorrection, "."));
      return;
    }
    translation->warnings.push_back(
        Concat(path, " does nothing: SkyRL does not apply it with ",
               "policy_loss_type '", loss.name, "'."));
    return;
  }
  if (!facts.has_rollout_log_probs && facts.wants_loss) {
    translation->warnings.push_back(
        Concat(path, " does nothing: there are no rollout_log_probs, and ",
               "SkyRL's loss then goes uncorrected."));
    return;
  }
  constexpr std::string_view kReason =
      "off_policy_correction compares old_log_probs with rollout_log_probs";
  RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                &translation->violations);
  RequireTensor(facts.has_old_log_probs, "old_log_probs", kReason,
                &translation->violations);
  ApplySkyrlCorrection(correction, translation);
}

}  // namespace

Translation TranslateSkyrl(const Struct& block, bool ignore_unknown_fields,
                           const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kSkyrlFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  RefuseEntropyCoefficient(reader);
  CheckSupportReplay(reader, facts, &translation.warnings);
  const SkyrlCorrection correction =
      ReadSkyrlCorrection(reader, ignore_unknown_fields, &translation);
  if (const SkyrlLoss* loss = ReadSkyrlLossType(reader)) {
    AddCorrection(reader, *loss, correction, facts, &translation);
    ReadSkyrlLoss(reader, *loss, correction, ignore_unknown_fields, facts,
                  &translation);
  }
  translation.spec.drift_source = DriftSource(facts);
  translation.report =
      [spec = translation.spec, padded_length = int64_t{facts.padded_length},
       has_cispo_ratios = facts.IsSince(kSkyrlCispoAnchor)](
          const kernels::BatchSums& sums, MetricMap* metrics, Violations*) {
        AddSkyrlCorrectionMetrics(spec, padded_length, sums, metrics);
        AddSkyrlLossMetrics(spec.loss, has_cispo_ratios, sums, metrics);
        AddSkyrlDriftMetrics(spec, sums, metrics);
      };
  return translation;
}

}  // namespace counterweight::server
