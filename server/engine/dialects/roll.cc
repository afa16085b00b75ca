#include "server/engine/dialects/roll.h"

#include <string>
#include <string_view>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/other_fields.h"
#include "server/engine/dialects/request_tensors.h"
#include "server/engine/dialects/roll_correction.h"
#include "server/engine/dialects/roll_loss.h"
#include "server/engine/dialects/roll_metrics.h"
#include "server/engine/dialects/roll_token_metrics.h"

namespace counterweight::server {

using google::protobuf::Struct;

Translation TranslateRoll(const Struct& block, bool ignore_unknown_fields,
                          const RequestFacts& facts) {
  constexpr std::string_view kRecomputes = "enable_old_logprobs_recompute";
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kRollFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings,
      kRollOtherFields);
  RollReport report;
  report.correction =
      ReadRollCorrection(reader, ignore_unknown_fields, &translation);
  report.loss = ReadRollLoss(reader, facts, &translation);
  report.has_loss = facts.wants_loss;
  const bool compares = report.correction.compares();
  if (compares) {
    constexpr std::string_view kReason =
        "train_infer_correction compares with it";
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                  &translation.violations);
    RequireTensor(facts.has_old_log_probs, "old_log_probs", kReason,
                  &translation.violations);
  }
  report.has_pair = facts.has_rollout_log_probs && facts.has_old_log_probs;
  if (report.has_pair) ApplyRollCorrection(report.correction, &translation);
  if (compares || facts.wants_loss) {
    report.padded_length = int64_t{facts.padded_length};
  }
  if (reader.ReadBool(kRecomputes, false)) {
    translation.warnings.push_back(
        Concat(reader.Path(kRecomputes),
               " changes no number: the request's old_log_probs are taken."));
  }
  translation.spec.drift_source = DriftSource(facts);
  WarnOfDriftAlone(facts.has_rollout_log_probs, compares || report.has_pair,
                   "rollout_log_probs", &translation.warnings);
  WarnOfDriftAlone(facts.has_old_log_probs,
                   compares || facts.wants_loss || report.has_pair,
                   "old_log_probs", &translation.warnings);
  if (facts.wants_loss && report.loss.coefficient == 0.0) {
    translation.warnings.push_back(
        Concat("Metrics of roll lack pg_loss and weighted_pg_loss: ",
               reader.Path("rl_loss_coef"), " is 0."));
  }
  translation.report = [report](const kernels::BatchSums& sums,
                                MetricMap* metrics, Violations*) {
    AddRollMetrics(report, sums, metrics);
  };
  if (report.has_pair || report.has_loss) {
    translation.token_metrics = [report](const CorrectedTokens& tokens,
                                         const kernels::BatchSums& sums,
                                         MetricMap* metrics) {
      AddRollTokenMetrics(report, tokens, sums, metrics);
    };
  }
  return translation;
}

}  // namespace counterweight::server
