#include "server/engine/dialects/verl.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/request_tensors.h"
#include "server/engine/dialects/verl_layout.h"
#include "server/engine/dialects/verl_loss.h"
#include "server/engine/dialects/verl_loss_metrics.h"
#include "server/engine/dialects/verl_metrics.h"
#include "server/engine/dialects/verl_presets.h"
#include "server/engine/dialects/verl_rules.h"
#include "server/engine/dialects/verl_thresholds.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using kernels::Bound;
using kernels::CorrectionSpec;
using kernels::kSafetyClamp;
using kernels::kUnbounded;
using kernels::Level;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::WeightSpec;

// Returns nothing and a violation if bypass_mode is not a bool: the mode
// determines which fields and tensors matter.
std::optional<VerlMode> ReadMode(const BlockReader& reader) {
  const bool bypass = reader.ReadBool("bypass_mode", false);
  if (!reader.IsNull("bypass_mode") &&
      !reader.Find("bypass_mode")->has_bool_value()) {
    return std::nullopt;
  }
  if (!bypass) return VerlMode::kDecoupled;
  // Reads it only in this mode, like verl.
  const Value* value = reader.Find("loss_type");
  const std::string_view loss_type =
      value == nullptr ? "ppo_clip" : std::string_view(value->string_value());
  if (loss_type == "reinforce") return VerlMode::kBypassReinforce;
  if (loss_type != "ppo_clip") {
    reader.Violate("loss_type",
                   Concat("Invalid loss_type: must be 'reinforce' or "
                          "'ppo_clip', got ",
                          Describe(*value), "."));
  }
  return VerlMode::kBypassPpoClip;
}

// `corrects`: rollout log-probs are compared with the trainer's.
void RequireTensors(VerlMode mode, bool corrects, const LossSpec& loss,
                    const RequestFacts& facts, Violations* violations) {
  const bool bypass = mode != VerlMode::kDecoupled;
  const auto require = [&](bool present, std::string_view name,
                           std::string_view reason) {
    RequireTensor(present, name, reason, violations);
  };
  if (corrects) {
    const std::string_view reason =
        bypass ? "bypass_mode true corrects current_log_probs - "
                 "rollout_log_probs"
               : "bypass_mode false corrects old_log_probs - "
                 "rollout_log_probs";
    require(facts.has_rollout_log_probs, "rollout_log_probs", reason);
    if (bypass) {
      require(facts.has_current_log_probs, "current_log_probs", reason);
    } else {
      require(facts.has_old_log_probs, "old_log_probs", reason);
    }
  }
  if (!facts.wants_loss) return;
  require(facts.has_current_log_probs, "current_log_probs",
          "the policy loss is a function of them");
  require(facts.has_advantages, "advantages",
          "the policy loss is made of them");
  if (!bypass) {
    require(facts.has_old_log_probs, "old_log_probs",
            "the policy loss compares current_log_probs with them");
  }
  if (loss.kl.estimator != kernels::KlEstimator::kNone) {
    require(facts.has_ref_log_probs, "ref_log_probs",
            "use_kl_loss penalizes current_log_probs - ref_log_probs");
  }
}

Level ReadLevel(const BlockReader& reader) {
  const Value& value = *reader.Find("rollout_is");
  if (value.string_value() == "token") return Level::kToken;
  if (value.string_value() == "sequence") return Level::kSequence;
  reader.Violate(
      "rollout_is",
      Concat("Invalid rollout_is: must be one of 'sequence', 'token', or "
             "null for none, got ",
             Describe(value), "."));
  return Level::kNone;
}

// Returns the importance weight, or level kNone.
WeightSpec ReadWeight(const BlockReader& reader, RatioSource source,
                      Translation* translation) {
  WeightSpec weight;
  weight.source = source;
  const bool normalize = reader.ReadBool("rollout_is_batch_normalize", false);
  if (reader.IsNull("rollout_is")) return weight;

  const Value* value = reader.Find("rollout_is_threshold");
  IsThreshold threshold;
  if (value != nullptr) {
    if (reader.IsNull("rollout_is_threshold")) {
      translation->warnings.push_back(
          Concat(reader.Path("rollout_is_threshold"),
                 " is null, which switches rollout_is off in verl: there "
                 "are no importance weights."));
      return weight;
    }
    std::vector<std::string> problems;
    const auto parsed = ParseIsThreshold(*value, &problems);
    for (std::string& problem : problems) {
      reader.Violate("rollout_is_threshold", std::move(problem));
    }
    if (parsed) threshold = *parsed;
  }
  weight.level = ReadLevel(reader);
  // verl clamps once: the token's log ratio, or the sequence's sum of unclamped
  // ones.
  (weight.level == Level::kToken ? weight.token_clamp
                                 : weight.aggregate_clamp) = kSafetyClamp;
  weight.upper = threshold.upper;
  weight.lower = threshold.lower.value_or(0.0);
  weight.bound = threshold.lower                 ? Bound::kMask
                 : threshold.upper == kUnbounded ? Bound::kNone
                                                 : Bound::kTruncate;
  weight.normalize = normalize;
  return weight;
}

// Inputs of the answer's metrics.
struct Report {
  CorrectionSpec spec;
  std::vector<std::string> rule_names;
  // Path of rollout_is_threshold, for violations.
  std::string threshold_path;
  // True if rollout log-probs are compared with the trainer's: drift has
  // metrics.
  bool compares;
  // True if the weights have metrics.
  bool measures_weights;
  VerlLossMetrics loss;
};

void AddMetrics(const Report& report, const kernels::BatchSums& sums,
                MetricMap* metrics, Violations* violations) {
  const CorrectionSpec& spec = report.spec;
  if (report.compares && sums.nonempty_sequences == 0) {
    violations->push_back(
        {"tensors[RESPONSE_MASK]",
         "response_mask must contain at least one valid token (1)."});
    return;
  }
  if (report.measures_weights && spec.weight.level != Level::kNone) {
    if (sums.weight.range.max == 0.0) {
      violations->push_back(
          {report.threshold_path,
           "Every importance weight is 0: rollout_is_threshold leaves no "
           "ratio of this batch inside its bounds, and verl divides by "
           "zero."});
      return;
    }
    AddVerlWeightMetrics(spec.weight, sums, metrics);
  }
  AddVerlRuleMetrics(spec, report.rule_names, sums, metrics);
  if (report.compares) {
    AddVerlDriftMetrics(sums, metrics);
    AddVerlProbabilityMetrics(sums, metrics);
  }
  if (spec.loss.surrogate != kernels::Surrogate::kNone) {
    AddVerlLossMetrics(report.loss, spec.loss, sums, metrics);
  }
}

// Reads the configuration's fields and those of the loss. `reader` reads the
// correction of `layout`, or its preset's.
void ReadConfig(const BlockReader& reader, const VerlLayout& layout,
                bool ignore, const RequestFacts& facts,
                Translation* translation) {
  CorrectionSpec& spec = translation->spec;
  const std::optional<VerlMode> mode = ReadMode(reader);
  // A loss alone needs no rollout log-probs; without them verl skips the
  // correction.
  const bool corrects = facts.has_rollout_log_probs || !facts.wants_loss ||
                        mode != VerlMode::kDecoupled ||
                        !reader.IsNull("rollout_is") ||
                        !reader.IsNull("rollout_rs");
  VerlLoss loss;
  if (mode) {
    if (facts.wants_loss || layout.has_loss) {
      loss = ReadVerlLoss(layout, *mode, ignore, facts, translation);
    }
    RequireTensors(*mode, corrects, loss.spec, facts, &translation->violations);
  }
  if (facts.wants_loss) {
    spec.loss = loss.spec;
    spec.loss.peer_sums = true;
  }
  translation->empty_loss_is_nan = true;

  const RatioSource source = mode == VerlMode::kDecoupled
                                 ? RatioSource::kOldRollout
                                 : RatioSource::kCurrentRollout;
  spec.drift_source = corrects ? source : RatioSource::kCurrentOld;
  // verl reports them if it has both log-probs.
  spec.peer_sums = corrects;
  spec.weight = ReadWeight(reader, source, translation);
  if (spec.weight.normalize && !translation->counts_use.given_count.empty()) {
    translation->warnings.push_back(
        Concat(reader.Path("rollout_is_batch_normalize"),
               " divides by the mean weight of each call, whereas ",
               translation->counts_use.given_count,
               " is of the step; global_counts, in its place, also takes the "
               "step's weight_sum."));
  }
  if (loss.corrects) {
    ReadVerlRules(reader, source, translation);
  } else if (!reader.IsNull("rollout_rs")) {
    translation->warnings.push_back(
        Concat(reader.Path("rollout_rs"),
               " is not read: loss_mode 'reinforce' rejects nothing."));
  }
  // See AddMetrics: weights that are all 0.
  translation->report_judges =
      corrects && spec.weight.bound == kernels::Bound::kMask;
  translation->report = [report =
                             Report{spec, translation->rule_names,
                                    reader.Path("rollout_is_threshold"),
                                    corrects, loss.corrects, loss.metrics}](
                            const kernels::BatchSums& sums, MetricMap* metrics,
                            Violations* violations) {
    AddMetrics(report, sums, metrics, violations);
  };
}

}  // namespace

Translation TranslateVerl(const Struct& block, bool ignore_unknown_fields,
                          const RequestFacts& facts) {
  Translation translation;
  const VerlLayout layout = LocateVerlConfig(block, &translation.violations);
  const BlockReader reader(*layout.correction.fields, layout.correction.path,
                           &translation.violations);
  if (reader.IsNull(kVerlPreset)) {
    CheckVerlFields(reader, ignore_unknown_fields, &translation.warnings);
    ReadConfig(reader, layout, ignore_unknown_fields, facts, &translation);
    return translation;
  }
  const std::optional<ExpandedPreset> preset =
      ExpandVerlPreset(reader, ignore_unknown_fields, &translation.warnings);
  if (!preset) return translation;
  const BlockReader config(preset->config, layout.correction.path,
                           &translation.violations, preset->argument_of);
  ReadConfig(config, layout, ignore_unknown_fields, facts, &translation);
  return translation;
}

}  // namespace counterweight::server
