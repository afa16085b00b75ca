#include "server/engine/dialects/ms_swift.h"

#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/ms_swift_correction.h"
#include "server/engine/dialects/ms_swift_loss.h"
#include "server/engine/dialects/ms_swift_metrics.h"
#include "server/engine/dialects/ms_swift_token_metrics.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::RatioSource;

void SetReport(const MsSwiftReport& report, Translation* translation) {
  translation->report_judges = report.has_opsm;
  translation->report = [report](const kernels::BatchSums& sums,
                                 MetricMap* metrics, Violations* violations) {
    // OPSM takes the mean advantage of a row, the rule each token's own.
    if (report.has_opsm && sums.peers.loss.mixed_rows > 0) {
      violations->push_back(
          {"tensors[ADVANTAGES]",
           "off_policy_sequence_mask_delta takes one advantage per row: "
           "entries must be equal along a row's kept tokens."});
      return;
    }
    AddMsSwiftMetrics(report, sums, metrics);
  };
  if (!HasMsSwiftTokenMetrics(report)) return;
  translation->token_metrics = [report](const CorrectedTokens& tokens,
                                        const kernels::BatchSums& sums,
                                        MetricMap* metrics) {
    AddMsSwiftTokenMetrics(report, tokens, sums, metrics);
  };
}

}  // namespace

Translation TranslateMsSwift(const Struct& block, bool ignore_unknown_fields,
                             const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kMsSwiftFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  MsSwiftReport report;
  report.correction = ReadMsSwiftCorrection(reader, facts, &translation);
  // The current log-probs, detached, stand for absent old ones.
  const RatioSource source = facts.has_old_log_probs
                                 ? RatioSource::kOldRollout
                                 : RatioSource::kCurrentRollout;
  ApplyMsSwiftCorrection(report.correction, source, facts, &translation);
  report.loss =
      ReadMsSwiftLoss(reader, facts, report.correction.weighs(), &translation);
  kernels::CorrectionSpec& spec = translation.spec;
  spec.drift_source = DriftSource(facts);
  spec.peer_sums = report.correction.measures;
  report.has_loss = facts.wants_loss;
  report.has_old = facts.has_old_log_probs;
  report.has_opsm = report.correction.opsm_delta && spec.num_rules > 0 &&
                    translation.rule_names.back() == "off_policy_sequence_mask";
  report.padded_length = facts.wants_loss ? int64_t{facts.padded_length} : 0;
  WarnOfDriftAlone(facts.has_rollout_log_probs,
                   report.correction.measures || report.has_opsm,
                   "rollout_log_probs", &translation.warnings);
  WarnOfDriftAlone(facts.has_old_log_probs,
                   report.correction.measures || facts.wants_loss,
                   "old_log_probs", &translation.warnings);
  SetReport(report, &translation);
  return translation;
}

}  // namespace counterweight::server
