#include "server/engine/dialects/areal.h"

#include <string>
#include <string_view>
#include <utility>

#include "server/engine/dialects/areal_loss.h"
#include "server/engine/dialects/areal_metrics.h"
#include "server/engine/dialects/areal_policies.h"
#include "server/engine/dialects/areal_rejection.h"
#include "server/engine/dialects/areal_token_metrics.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/other_fields.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;

void SetArealReport(const ArealReport& report, Translation* translation) {
  translation->report = [report](const kernels::BatchSums& sums,
                                 MetricMap* metrics, Violations*) {
    AddArealMetrics(report, sums, metrics);
  };
  if (!report.has_loss) return;
  translation->token_metrics = [report](const CorrectedTokens& tokens,
                                        const kernels::BatchSums&,
                                        MetricMap* metrics) {
    AddArealTokenMetrics(report, tokens, metrics);
  };
}

// Reads an actor's struct at `path`.
void TranslateArealActor(const Struct& actor, std::string path,
                         bool ignore_unknown_fields, const RequestFacts& facts,
                         Translation* to) {
  Translation& translation = *to;
  const BlockReader reader(actor, std::move(path), &translation.violations);
  reader.CheckKeys(
      kArealFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings,
      kArealOtherFields);
  ArealReport report;
  report.has_loss = facts.wants_loss;
  report.policies = ReadArealPolicies(reader, &translation);
  report.rejection =
      ReadArealRejection(reader, ignore_unknown_fields, &translation);
  report.loss = ReadArealLoss(reader, report.policies, facts, &translation);
  if (report.rejection.is_on && report.loss.type == ArealLossType::kSapo) {
    report.rejection.is_on = false;
    translation.warnings.push_back(
        Concat(reader.Path("rejection_sampling"),
               " does nothing with use_sapo_loss, which has no weights."));
  }
  if (report.rejection.is_on) {
    RequirePair(report.policies.Correction(), facts,
                "rejection_sampling compares with it", &translation.violations);
    ApplyArealRejection(reader, report.rejection, report.policies,
                        &translation);
  }
  const bool compares = report.rejection.is_on || facts.wants_loss;
  const kernels::RatioSource source = report.policies.Correction();
  report.has_behaviour =
      compares && (source == kernels::RatioSource::kCurrentOld ||
                   facts.has_rollout_log_probs);
  translation.spec.drift_source =
      report.has_behaviour ? source : DriftSource(facts);
  report.padded_length = facts.wants_loss ? int64_t{facts.padded_length} : 0;
  // A policy compared with itself has constant weights.
  const bool reads = facts.wants_loss ||
                     (report.rejection.is_on && report.policies.is_decoupled);
  WarnOfDriftAlone(facts.has_rollout_log_probs,
                   reads && source != kernels::RatioSource::kCurrentOld,
                   "rollout_log_probs", &translation.warnings);
  WarnOfDriftAlone(facts.has_old_log_probs,
                   reads && source != kernels::RatioSource::kCurrentRollout,
                   "old_log_probs", &translation.warnings);
  WarnOfDriftAlone(compares && facts.has_current_log_probs &&
                       source != kernels::RatioSource::kOldRollout,
                   reads, "current_log_probs", &translation.warnings);
  SetArealReport(report, &translation);
}

}  // namespace

Translation TranslateAreal(const Struct& block, bool ignore_unknown_fields,
                           const RequestFacts& facts) {
  constexpr std::string_view kRoot = "method.dialect.block";
  Translation translation;
  const BlockReader reader(block, std::string(kRoot), &translation.violations);
  if (reader.Find(kArealActor) == nullptr) {
    TranslateArealActor(block, std::string(kRoot), ignore_unknown_fields, facts,
                        &translation);
    return translation;
  }
  // Other nodes of the tree, which users' classes extend, are not checked.
  for (const std::string_view field : kArealFields) {
    if (reader.Find(field) == nullptr) continue;
    reader.Violate(field, Concat(field, " belongs into ", kArealActor,
                                 " where the block is AReaL's own tree."));
  }
  const Struct nothing;
  const Struct* actor = reader.ReadStruct(kArealActor);
  TranslateArealActor(actor == nullptr ? nothing : *actor,
                      reader.Path(kArealActor), ignore_unknown_fields, facts,
                      &translation);
  return translation;
}

}  // namespace counterweight::server
