#include "server/engine/dialects/verl_loss.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/sums.h"
#include "kernels/surrogates/list.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/verl_aggregation.h"
#include "server/engine/dialects/verl_loss_modes.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::KlEstimator;
using kernels::KlSpec;
using kernels::kSafetyClamp;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::Surrogate;
using kernels::TokenSet;

using enum VerlLossAggregation;

struct KlType {
  std::string_view name;
  KlEstimator estimator;
};

// kl_penalty_forward. A '+' behind the name takes the gradient of k2.
constexpr KlType kKlTypes[] = {
    {"kl", KlEstimator::kK1},   {"k1", KlEstimator::kK1},
    {"abs", KlEstimator::kAbs}, {"mse", KlEstimator::kK2},
    {"k2", KlEstimator::kK2},   {"low_var_kl", KlEstimator::kK3},
    {"k3", KlEstimator::kK3},
};

// low_var_kl's clamp of its result.
constexpr double kMaxLowVarKl = 10.0;

void ReadSurrogate(const VerlLossMode& mode, const BlockReader& actor,
                   const BlockReader& policy_loss, LossSpec* spec) {
  spec->surrogate = mode.surrogate;
  if (mode.clamps) {
    spec->log_ratio_lower = -kSafetyClamp;
    spec->log_ratio_upper = kSafetyClamp;
  }
  mode.read(actor, policy_loss, spec);
}

// The KL penalty without its reduction.
KlSpec ReadKl(const BlockReader& actor) {
  KlSpec kl;
  if (!actor.ReadBool("use_kl_loss", false)) return kl;
  kl.coefficient = actor.ReadNumber("kl_loss_coef", 0.001, kVerlCoefficient);
  std::vector<std::string> names;
  for (const std::string_view suffix : {"", "+"}) {
    for (const KlType& type : kKlTypes) {
      names.push_back(Concat(type.name, suffix));
    }
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto index = actor.ReadName("kl_loss_type", "low_var_kl", views);
  if (!index) return kl;
  kl.estimator = kKlTypes[*index % std::size(kKlTypes)].estimator;
  kl.straight_through = *index >= std::size(kKlTypes);
  if (kl.estimator == KlEstimator::kK3) {
    kl.token_clamp = kSafetyClamp;
    kl.value_clamp = kMaxLowVarKl;
  }
  return kl;
}

void RefuseEntropyBonus(const BlockReader& actor) {
  if (actor.ReadNumber("entropy_coeff", 0.0) == 0.0) return;
  actor.Violate("entropy_coeff",
                "An entropy bonus cannot be computed here: its gradient is by "
                "the logits, of which this service sees only the log-probs of "
                "the tokens taken. Set it to 0 and add the bonus in the "
                "trainer.");
}

// Reductions of the policy loss and of its KL penalty.
void MakeReductions(const VerlLossMode& mode,
                    const VerlAggregation& aggregation,
                    const BlockReader& global_batch_info,
                    const RequestFacts& facts, LossSpec* spec) {
  if (!aggregation.mode) return;
  const bool is_fixed =
      mode.aggregation == kSeqMeanTokenMean ||
      (mode.aggregation == kGspo && !facts.IsSince(kVerlGspoByLossAggMode));
  std::vector<VerlAggMode> used;
  if (mode.aggregation == kMeanOverRows) {
    spec->reduction = {kernels::BatchCount::kRows,
                       kernels::RowCount::kKeptTokens, 1.0};
  } else {
    used.push_back(is_fixed ? VerlAggMode::kSeqMeanTokenMean
                            : *aggregation.mode);
    spec->reduction =
        MakeVerlReduction(aggregation, used.back(), TokenSet::kKept);
  }
  // The penalty follows loss_agg_mode even if the loss does not.
  if (spec->kl.estimator != KlEstimator::kNone) {
    used.push_back(*aggregation.mode);
    spec->kl.reduction =
        MakeVerlReduction(aggregation, used.back(), spec->kl.over);
  }
  if (!facts.has_global_counts) {
    RequireVerlCounts(aggregation, used, global_batch_info);
  }
}

// How global_counts and verl's own global_batch_info meet, and what of a loss
// stays within one call.
void UseCounts(const VerlLossMode& mode, const VerlAggregation& aggregation,
               const BlockReader& actor, const BlockReader& global_batch_info,
               Translation* translation) {
  CountsUse& use = translation->counts_use;
  if (mode.aggregation == kMeanOverRows) {
    use.refusal = Concat("is not read by loss_mode '", mode.name,
                         "', which averages over the rows of each call in "
                         "verl; leave it out");
  }
  if (!global_batch_info.IsNull("dp_size")) {
    use.given_ranks = global_batch_info.Path("dp_size");
  }
  for (const char* const key : {"global_batch_size", "batch_num_tokens"}) {
    if (!global_batch_info.IsNull(key)) {
      use.given_count = global_batch_info.Path(key);
    }
  }
  if (aggregation.is_norm_width) {
    use.width_field = actor.Path("loss_scale_factor");
  }
  if (!aggregation.has_counts()) return;
  if (aggregation.is_norm_width) {
    translation->warnings.push_back(
        Concat(actor.Path("loss_scale_factor"),
               " is absent: each call divides by its own padded width, so the "
               "losses of calls of other widths do not add up."));
  }
  if (kernels::InfoOf(mode.surrogate).Has(kernels::kTraitSelection)) {
    translation->warnings.push_back(
        Concat(actor.Path("loss_mode"), " '", mode.name,
               "' selects tokens among those of each call, as in verl: the "
               "losses of the step's calls do not add up to the whole "
               "batch's."));
  }
}

void WarnOfReleases(const VerlLossMode& mode,
                    const VerlAggregation& aggregation,
                    const BlockReader& actor, const RequestFacts& facts,
                    std::vector<std::string>* warnings) {
  if (facts.asked.is_named || !facts.wants_loss || mode.aggregation != kGspo ||
      aggregation.mode == VerlAggMode::kSeqMeanTokenMean) {
    return;
  }
  warnings->push_back(Concat(
      actor.Path("loss_agg_mode"), ": releases of verl differ: since ",
      ToString(kVerlGspoByLossAggMode),
      " loss_mode 'gspo' follows loss_agg_mode, as here; before, it was always "
      "seq-mean-token-mean. Name the release to be sure."));
}

}  // namespace

VerlLoss ReadVerlLoss(const VerlLayout& layout, VerlMode mode, bool ignore,
                      const RequestFacts& facts, Translation* translation) {
  const BlockReader actor(*layout.actor.fields, layout.actor.path,
                          &translation->violations);
  const BlockReader policy_loss(*layout.policy_loss.fields,
                                layout.policy_loss.path,
                                &translation->violations);
  if (!layout.is_tree) {
    CheckVerlLossFields(policy_loss, ignore, &translation->warnings);
  }
  RefuseEntropyBonus(actor);
  const Struct* counts = actor.ReadStruct("global_batch_info");
  const BlockReader global_batch_info(
      counts == nullptr ? Struct::default_instance() : *counts,
      actor.Path("global_batch_info"), &translation->violations);
  CheckVerlCountFields(global_batch_info, ignore, &translation->warnings);
  const VerlAggregation aggregation =
      ReadVerlAggregation(actor, global_batch_info, facts.padded_length);
  VerlLoss loss;
  LossSpec& spec = loss.spec;
  spec.kl = ReadKl(actor);
  const VerlLossMode* row = FindVerlLossMode(policy_loss, mode);
  if (row == nullptr) return loss;

  const bool bypass = mode != VerlMode::kDecoupled;
  ReadSurrogate(*row, actor, policy_loss, &spec);
  spec.source =
      bypass ? RatioSource::kCurrentRollout : RatioSource::kCurrentOld;
  spec.metrics_source = spec.source;
  spec.over = TokenSet::kKept;
  // In bypass mode the mask after rejection stays inside the loss function.
  spec.kl.over = bypass ? TokenSet::kOriginal : TokenSet::kKept;
  MakeReductions(*row, aggregation, global_batch_info, facts, &spec);
  UseCounts(*row, aggregation, actor, global_batch_info, translation);
  WarnOfReleases(*row, aggregation, actor, facts, &translation->warnings);
  spec.seed = facts.seed;
  // The ratio of bypass_mode's ppo_clip already corrects the drift.
  spec.applies_weight = !bypass || row->name == kVerlReinforce;
  spec.allow_double_correction = true;
  loss.metrics = {row->ppo_kl, row->clip_fraction};
  loss.corrects =
      policy_loss.IsNull("loss_mode") ||
      policy_loss.Find("loss_mode")->string_value() != kVerlReinforce;
  return loss;
}

}  // namespace counterweight::server
