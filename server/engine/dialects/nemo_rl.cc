#include "server/engine/dialects/nemo_rl.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// The log-probs that the weights and NeMo RL's own metrics compare.
void RequireCompared(const NemoRlLoss& loss, const RequestFacts& facts,
                     std::string_view reason, Violations* violations) {
  RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", reason,
                violations);
  if (loss.is_on_policy) {
    RequireTensor(facts.has_current_log_probs, "current_log_probs",
                  "force_on_policy_ratio takes it for the old log-probs",
                  violations);
  } else {
    RequireTensor(facts.has_old_log_probs, "old_log_probs", reason, violations);
  }
}

bool HasCompared(const NemoRlLoss& loss, const RequestFacts& facts) {
  return facts.has_rollout_log_probs &&
         (loss.is_on_policy ? facts.has_current_log_probs
                            : facts.has_old_log_probs);
}

// Means, least and largest of the rows' errors, 0 without any.
void AddErrors(const std::vector<double>& errors, const std::string& suffix,
               MetricMap* metrics) {
  double sum = 0.0, low = 0.0, high = 0.0;
  if (!errors.empty()) {
    for (const double error : errors) sum += error;
    sum /= static_cast<double>(errors.size());
    low = *std::min_element(errors.begin(), errors.end());
    high = *std::max_element(errors.begin(), errors.end());
  }
  (*metrics)["mean_seq_mult_prob_error" + suffix] = sum;
  (*metrics)["min_seq_mult_prob_error" + suffix] = low;
  (*metrics)["max_seq_mult_prob_error" + suffix] = high;
}

// A threshold drops sequences before everything, which shrinks every
// denominator; null drops none, and NeMo-RL then reports the metrics alone.
void ReadFilter(const BlockReader& reader, const NemoRlLoss& loss,
                const RequestFacts& facts, Translation* translation) {
  if (reader.Find(kNemoRlFilter) == nullptr) return;
  const std::optional<double> upper =
      reader.ReadOptionalNumber(kNemoRlFilter, kNonNegative);
  if (!upper && !HasCompared(loss, facts)) return;
  RequireCompared(loss, facts, Concat(kNemoRlFilter, " compares with it"),
                  &translation->violations);
  RowFilter filter;
  filter.source = loss.Correction();
  if (upper) filter.upper = *upper;
  filter.report = [](const RowErrors& errors, MetricMap* metrics) {
    AddErrors(errors.all, "", metrics);
    AddErrors(errors.kept, "_after_mask", metrics);
    (*metrics)["num_masked_seqs"] =
        static_cast<double>(errors.all.size() - errors.kept.size());
  };
  translation->row_filter = std::move(filter);
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
  ReadFilter(reader, report.loss, facts, &translation);
  if (report.correction.weighs) {
    RequireCompared(report.loss, facts,
                    "use_importance_sampling_correction compares with it",
                    &translation.violations);
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
