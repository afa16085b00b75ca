#include "server/engine/dialects/slime.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/request_tensors.h"
#include "server/engine/dialects/slime_correction.h"
#include "server/engine/dialects/slime_loss.h"
#include "server/engine/dialects/slime_metrics.h"
#include "server/engine/dialects/slime_policies.h"
#include "server/engine/dialects/slime_token_metrics.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::RatioSource;

constexpr SlimeSystem kSlime = {
    "slime", false, "slime.backends.megatron_utils.loss.icepop_function",
    "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"};
constexpr SlimeSystem kMiles = {
    "miles", true,
    "miles.backends.training_utils.loss_hub.corrections.icepop_function",
    "examples.infra_features.train_infer_mismatch_helper.mis."
    "compute_mis_weights_with_cp"};

std::vector<std::string_view> FieldsOf(const SlimeSystem& system) {
  std::vector<std::string_view> fields(std::begin(kSlimeFields),
                                       std::end(kSlimeFields));
  if (system.is_miles) {
    fields.insert(fields.end(), std::begin(kMilesFields),
                  std::end(kMilesFields));
  }
  return fields;
}

// The pair of the mismatch metrics, and of slime's without a correction.
RatioSource DriftOf(const SlimePolicies& policies,
                    const SlimeCorrection& correction,
                    const RequestFacts& facts) {
  const bool takes_rollout = policies.rollout_is_old && !correction.measures;
  const bool is_current = policies.current_is_old || takes_rollout;
  return is_current && facts.has_rollout_log_probs &&
                 facts.has_current_log_probs
             ? RatioSource::kCurrentRollout
             : DriftSource(facts);
}

// Says which of the request's log-probs do not show in the answer. A loss
// compares the rollout's by a metric at least.
void WarnOfAbsences(const SlimeReport& report, const RequestFacts& facts,
                    std::vector<std::string>* warnings) {
  const bool measures = report.correction.measures;
  const SlimePolicies& policies = report.policies;
  WarnOfDriftAlone(facts.has_rollout_log_probs, measures || facts.wants_loss,
                   "rollout_log_probs", warnings);
  WarnOfDriftAlone(
      facts.has_old_log_probs,
      (facts.wants_loss && policies.Loss() == RatioSource::kCurrentOld) ||
          (measures && policies.Correction() == RatioSource::kOldRollout),
      "old_log_probs", warnings);
}

Translation Translate(const SlimeSystem& system, const Struct& block,
                      bool ignore_unknown_fields, const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      FieldsOf(system), ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  SlimeReport report;
  report.is_miles = system.is_miles;
  report.has_rollout = facts.has_rollout_log_probs;
  report.policies = ReadSlimePolicies(reader, system, facts, &translation);
  report.correction = ReadSlimeCorrection(reader, system, &translation);
  ApplySlimeCorrection(report.correction, report.policies, facts, &translation);
  report.loss = ReadSlimeLoss(reader, system, report.policies,
                              report.correction, facts, &translation);
  kernels::CorrectionSpec& spec = translation.spec;
  spec.drift_source = DriftOf(report.policies, report.correction, facts);
  spec.peer_sums = report.correction.measures &&
                   report.correction.function == SlimeFunction::kMis;
  report.spec = spec;
  WarnOfAbsences(report, facts, &translation.warnings);
  translation.report = [report](const kernels::BatchSums& sums,
                                MetricMap* metrics, Violations*) {
    AddSlimeMetrics(report, sums, metrics);
  };
  if (!facts.wants_loss && !report.correction.measures) return translation;
  translation.token_metrics = [report](const CorrectedTokens& tokens,
                                       const kernels::BatchSums& sums,
                                       MetricMap* metrics) {
    AddSlimeTokenMetrics(report, tokens, sums, metrics);
  };
  return translation;
}

}  // namespace

Translation TranslateSlime(const Struct& block, bool ignore_unknown_fields,
                           const RequestFacts& facts) {
  return Translate(kSlime, block, ignore_unknown_fields, facts);
}

Translation TranslateMiles(const Struct& block, bool ignore_unknown_fields,
                           const RequestFacts& facts) {
  return Translate(kMiles, block, ignore_unknown_fields, facts);
}

}  // namespace counterweight::server
