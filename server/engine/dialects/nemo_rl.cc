#include "server/engine/dialects/nemo_rl.h"

#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/nemo_rl_correction.h"
#include "server/engine/dialects/nemo_rl_loss.h"
#include "server/engine/dialects/nemo_rl_metrics.h"
#include "server/engine/dialects/nemo_rl_token_metrics.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::RatioSource;

constexpr std::string_view kNemoRlFilter = "seq_logprob_error_threshold";

// A threshold drops sequences, which shrinks every denominator; null drops
// none, and NeMo-RL then reports the filter's metrics only.
void RefuseFilter(const BlockReader& reader) {
  if (reader.IsNull(kNemoRlFilter)) return;
  reader.Violate(kNemoRlFilter,
                 Concat(kNemoRlFilter,
                        " is not computed yet: it drops sequences by the mean "
                        "of exp(|old - rollout|), before everything; null "
                        "leaves it out."));
}

// The log-probs that the weights and NeMo RL's own metrics compare.
void RequireCompared(const NemoRlLoss& loss, const RequestFacts& facts,
                     Violations* violations) {
  constexpr std::string_view kReason =
      "use_importance_sampling_correction compares with it";
  RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                violations);
  if (loss.is_on_policy) {
    RequireTensor(facts.has_current_log_probs, "current_log_probs",
                  "force_on_policy_ratio takes it for the old log-probs",
                  violations);
  } else {
    RequireTensor(facts.has_old_log_probs, "old_log_probs", kReason,
                  violations);
  }
}

bool HasCompared(const NemoRlLoss& loss, const RequestFacts& facts) {
  return facts.has_rollout_log_probs &&
         (loss.is_on_policy ? facts.has_current_log_probs
                            : facts.has_old_log_probs);
}

}  // namespace

Translation TranslateNemoRl(const Struct& block, bool ignore_unknown_fields,
                            const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kNemoRlFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  NemoRlReport report;
  report.has_loss = facts.wants_loss;
  report.correction = ReadNemoRlCorrection(reader, &translation.warnings);
  report.loss = ReadNemoRlLoss(reader, facts, &translation);
  RefuseFilter(reader);
  if (report.correction.weighs) {
    RequireCompared(report.loss, facts, &translation.violations);
  }
  const RatioSource source = report.loss.Correction();
  report.compares = HasCompared(report.loss, facts);
  ApplyNemoRlCorrection(report.correction, source, report.compares,
                        &translation);
  translation.spec.drift_source = report.compares ? source : DriftSource(facts);
  WarnOfDriftAlone(facts.has_rollout_log_probs, report.compares,
                   "rollout_log_probs", &translation.warnings);
  WarnOfDriftAlone(facts.has_old_log_probs, !report.loss.is_on_policy,
                   "old_log_probs", &translation.warnings);
  translation.warnings.emplace_back(
      "Metrics of nemo_rl that need sums which are not kept here are absent.");
  translation.report = [report](const kernels::BatchSums& sums,
                                MetricMap* metrics, Violations*) {
    AddNemoRlMetrics(report, sums, metrics);
  };
  translation.token_metrics = [report](const CorrectedTokens& tokens,
                                       const kernels::BatchSums& sums,
                                       MetricMap* metrics) {
    AddNemoRlTokenMetrics(report, tokens, sums, metrics);
  };
  return translation;
}

}  // namespace counterweight::server
