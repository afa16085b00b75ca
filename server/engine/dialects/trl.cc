#include "server/engine/dialects/trl.h"

#include <string>
#include <string_view>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/request_tensors.h"
#include "server/engine/dialects/trl_correction.h"
#include "server/engine/dialects/trl_loss.h"
#include "server/engine/dialects/trl_metrics.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::Level;
using kernels::RatioSource;

// Requests cannot carry entropies.
void RefuseEntropies(const BlockReader& reader) {
  const auto refuse = [&](std::string_view key, bool needed) {
    if (!needed) return;
    reader.Violate(key,
                   Concat(key,
                          " needs the entropy of each token, which a request "
                          "does not carry; no gradient of log-probs has an "
                          "entropy bonus in it."));
  };
  constexpr std::string_view kQuantile = "top_entropy_quantile";
  refuse(kQuantile, reader.ReadNumber(kQuantile, 1.0) < 1.0);
  refuse("entropy_coef", reader.ReadNumber("entropy_coef", 0.0) != 0.0);
  refuse("use_adaptive_entropy",
         reader.ReadBool("use_adaptive_entropy", false));
}

void CheckLiger(const BlockReader& reader, const TrlCorrection& correction,
                const RequestFacts& facts, std::vector<std::string>* warnings) {
  if (!reader.ReadBool("use_liger_kernel", false)) return;
  if (facts.IsSince(kTrlOwnLossOnly)) {
    if (!facts.asked.is_named) {
      warnings->push_back(Concat(
          reader.Path("use_liger_kernel"),
          ": releases of TRL differ: ", "since ", ToString(kTrlOwnLossOnly),
          " it changes no number, as here; before, Liger's loss had "
          "metrics of its own and refused ",
          kTrlOffPolicyMask, "."));
    }
    return;
  }
  if (correction.off_policy_mask_threshold) {
    reader.Violate("use_liger_kernel",
                   Concat("Liger kernel does not support off-policy sequence "
                          "masking (",
                          kTrlOffPolicyMask, ") yet."));
  } else if (facts.wants_loss) {
    warnings->push_back(
        Concat(reader.Path("use_liger_kernel"),
               ": loss and metrics are those of TRL's own loss; Liger's "
               "reports one 'clip_ratio' instead."));
  }
}

void CheckTensors(const TrlCorrection& correction, const TrlLoss& loss,
                  const RequestFacts& facts, Violations* violations) {
  if (correction.needs_rollout) {
    constexpr std::string_view kReason =
        "vllm_importance_sampling_correction compares the sampler's log-probs "
        "with the trainer's";
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                  violations);
    RequireTensor(facts.has_old_log_probs || facts.has_current_log_probs,
                  "old_log_probs", kReason, violations);
  }
  const auto require_policy = [&](std::string_view reason) {
    RequireTensor(facts.has_current_log_probs, "current_log_probs", reason,
                  violations);
    RequireTensor(facts.has_advantages, "advantages", reason, violations);
  };
  if (correction.off_policy_mask_threshold) {
    require_policy("off_policy_mask_threshold needs it");
  }
  if (!facts.wants_loss) return;
  require_policy("a loss is asked for");
  RequireTensor(loss.beta == 0.0 || facts.has_ref_log_probs, "ref_log_probs",
                "beta is not 0", violations);
}

// TRL's mask uses the sampler, else the old policy; without either the
// divergence is 0 and nothing is dropped.
void AddOffPolicyMask(const BlockReader& reader, double threshold,
                      const RequestFacts& facts, Translation* translation) {
  if (!facts.has_rollout_log_probs && !facts.has_old_log_probs) {
    if (threshold >= 0.0) return;
    reader.Violate(kTrlOffPolicyMask,
                   Concat(kTrlOffPolicyMask,
                          " must be >= 0 where there are "
                          "neither rollout_log_probs nor old_log_probs, got ",
                          FormatNumber(threshold),
                          ": every row with a negative advantage would be "
                          "dropped."));
    return;
  }
  kernels::CorrectionSpec& spec = translation->spec;
  spec.rules[spec.num_rules++] = TrlOffPolicyMask(
      threshold, facts.has_rollout_log_probs ? RatioSource::kCurrentRollout
                                             : RatioSource::kCurrentOld);
  translation->rule_names.emplace_back("off_policy_mask");
}

void SetReport(const TrlLoss& loss, const RequestFacts& facts,
               Translation* translation) {
  const bool by_row =
      loss.type == TrlLossType::kVespo ||
      (loss.type == TrlLossType::kLuspo && loss.luspo_counts_padding);
  translation->report_judges = facts.wants_loss && by_row;
  translation->report = [weight = translation->spec.weight, loss,
                         wants_loss = facts.wants_loss,
                         judges = translation->report_judges,
                         padded_length = int64_t{facts.padded_length}](
                            const kernels::BatchSums& sums, MetricMap* metrics,
                            Violations* violations) {
    // VESPO has one phi per row, LUSPO advantages of padding.
    if (judges && sums.peers.loss.mixed_rows > 0) {
      violations->push_back(
          {"tensors[ADVANTAGES]",
           Concat("loss_type '", Name(loss.type),
                  "' takes one advantage per row: entries must be equal along "
                  "a row's kept tokens.")});
      return;
    }
    if (weight.level != Level::kNone) {
      AddTrlSamplingMetrics(weight, sums, metrics);
    }
    if (wants_loss) AddTrlLossMetrics(loss, padded_length, sums, metrics);
  };
}

}  // namespace

Translation TranslateTrl(const Struct& block, bool ignore_unknown_fields,
                         const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kTrlFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  RefuseEntropies(reader);
  const TrlCorrection correction =
      ReadTrlCorrection(reader, facts, &translation.warnings);
  const TrlLoss loss =
      ReadTrlLoss(reader, correction.weight, facts, &translation.warnings);
  CheckLiger(reader, correction, facts, &translation.warnings);
  CheckTensors(correction, loss, facts, &translation.violations);
  if (correction.off_policy_mask_threshold) {
    AddOffPolicyMask(reader, *correction.off_policy_mask_threshold, facts,
                     &translation);
  }
  if (!translation.violations.empty()) return translation;

  kernels::CorrectionSpec& spec = translation.spec;
  spec.drift_source = DriftSource(facts);
  spec.unknown_rollout =
      facts.has_rollout_log_probs && facts.IsSince(kTrlUnknownSampler);
  spec.weight = correction.weight;
  if (spec.weight.level != Level::kNone) spec.weight.source = spec.drift_source;
  if (facts.wants_loss) {
    spec.loss = MakeTrlLossSpec(loss, spec.weight, facts);
    translation.counts_use = TrlCountsUse(reader, loss);
    spec.loss.peer_sums = true;
  }
  SetReport(loss, facts, &translation);
  return translation;
}

}  // namespace counterweight::server
