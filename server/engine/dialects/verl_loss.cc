#include "server/engine/dialects/verl_loss.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "kernels/sums.h"
#include "kernels/surrogates/list.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/verl_aggregation.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::KlEstimator;
using kernels::KlSpec;
using kernels::kSafetyClamp;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::Surrogate;
using kernels::TokenSet;

// A loss's aggregation of tokens.
enum class LossAggregation : uint8_t {
  kLossAggMode,
  kSeqMeanTokenMean,  // whatever loss_agg_mode is
  kGspo,              // that before 0.9.1, and loss_agg_mode since
  kMeanOverRows       // of one loss per row, empty rows and all
};

// Reads a loss's own fields into *spec; verl checks no others.
using ReadFields = void (*)(const BlockReader& actor,
                            const BlockReader& policy_loss, LossSpec* spec);

// One function of POLICY_LOSS_REGISTRY.
struct LossMode {
  std::string_view name;
  Surrogate surrogate;
  ReadFields read;
  // The log ratio is clamped at 20 before everything.
  bool clamps;
  LossAggregation aggregation;
  VerlPpoKl ppo_kl;
  VerlClipFraction clip_fraction;
};

using enum LossAggregation;
using enum VerlClipFraction;
constexpr auto kNoKl = VerlPpoKl::kNone;
constexpr auto kMean = VerlPpoKl::kMean;
constexpr auto kClamped = VerlPpoKl::kClampedMean;
constexpr auto kAbsolute = VerlPpoKl::kAbsoluteMean;

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

constexpr NumberRange kFraction{.lowest = 0.0, .above = true, .highest = 1.0};
// Factors, which must not overflow where kernels/ compute in float32.
constexpr double kLargest = std::numeric_limits<float>::max();
constexpr NumberRange kScale{.lowest = 0.0, .above = true, .highest = kLargest};
constexpr NumberRange kAnyCoefficient{.lowest = 0.0, .highest = kLargest};

// Reads clip_ratio_low and clip_ratio_high, each 0.2 if absent; clip_ratio
// matters only if one of them is null.
void ReadClipRange(const BlockReader& actor, LossSpec* spec) {
  constexpr double kClipRatio = 0.2;
  const auto is_null = [&](std::string_view key) {
    return actor.Find(key) != nullptr && actor.IsNull(key);
  };
  const double clip_ratio =
      is_null("clip_ratio_low") || is_null("clip_ratio_high")
          ? actor.ReadNumber("clip_ratio", kClipRatio, kNonNegative)
          : kClipRatio;
  const auto read = [&](std::string_view key) {
    return is_null(key) ? clip_ratio
                        : actor.ReadNumber(key, kClipRatio, kNonNegative);
  };
  spec->clip_low = read("clip_ratio_low");
  spec->clip_high = read("clip_ratio_high");
}

void ReadClip(const BlockReader& actor, const BlockReader& /*policy_loss*/,
              LossSpec* spec) {
  ReadClipRange(actor, spec);
}

void ReadNothing(const BlockReader& /*actor*/,
                 const BlockReader& /*policy_loss*/, LossSpec* /*spec*/) {}

constexpr double kClipRatioC = 3.0;

void ReadVanilla(const BlockReader& actor, const BlockReader& /*policy_loss*/,
                 LossSpec* spec) {
  ReadClipRange(actor, spec);
  spec->dual_clip = actor.ReadNumber("clip_ratio_c", kClipRatioC,
                                     {.lowest = 1.0, .above = true});
}

void ReadGspo(const BlockReader& actor, const BlockReader& /*policy_loss*/,
              LossSpec* spec) {
  ReadClipRange(actor, spec);
  spec->level = LossLevel::kSequenceToken;
  spec->log_ratio_upper = 10.0;
}

void ReadDppo(const BlockReader& actor, const BlockReader& /*policy_loss*/,
              LossSpec* spec) {
  ReadClipRange(actor, spec);
  spec->ratio_cap = actor.ReadNumber("clip_ratio_c", kClipRatioC, kPositive);
  spec->log_prob_form = true;
}

void ReadSapo(const BlockReader& actor, const BlockReader& /*policy_loss*/,
              LossSpec* spec) {
  spec->tau_positive = actor.ReadNumber("tau_pos", 1.0, kScale);
  spec->tau_negative = actor.ReadNumber("tau_neg", 1.05, kScale);
}

void ReadClipCov(const BlockReader& actor, const BlockReader& policy_loss,
                 LossSpec* spec) {
  ReadClipRange(actor, spec);
  // A selection cannot exceed the candidates.
  spec->covariance_fraction =
      std::min(policy_loss.ReadOptionalNumber("clip_cov_ratio", kPositive)
                   .value_or(0.0002),
               1.0);
  spec->covariance_lower =
      policy_loss.ReadOptionalNumber("clip_cov_lb").value_or(1.0);
  // verl selects nothing if the bounds are swapped.
  spec->covariance_upper =
      std::max(policy_loss.ReadOptionalNumber("clip_cov_ub").value_or(5.0),
               spec->covariance_lower);
}

void ReadKlCov(const BlockReader& /*actor*/, const BlockReader& policy_loss,
               LossSpec* spec) {
  spec->covariance_fraction =
      policy_loss.ReadOptionalNumber("kl_cov_ratio", kFraction)
          .value_or(0.0002);
  // PolicyLossConfig's default differs from the function's own for None.
  spec->covariance_kl_weight =
      policy_loss.Find("ppo_kl_coef") == nullptr
          ? 0.1
          : policy_loss.ReadOptionalNumber("ppo_kl_coef", kAnyCoefficient)
                .value_or(1.0);
}

void ReadDro(const BlockReader& /*actor*/, const BlockReader& policy_loss,
             LossSpec* spec) {
  if (policy_loss.IsNull("dro_beta")) {
    policy_loss.Violate("dro_beta",
                        "dro_beta must be a positive number for loss_mode "
                        "'dro'; it has no default.");
    return;
  }
  spec->beta = policy_loss.ReadNumber("dro_beta", 1.0, kScale);
}

constexpr LossMode kLossModes[] = {
    {"vanilla", Surrogate::kPpoClip, ReadVanilla, true, kLossAggMode, kClamped,
     kBoth},
    {"dppo_tv", Surrogate::kDppoTv, ReadDppo, true, kLossAggMode, kClamped,
     kBoth},
    {"dppo_kl", Surrogate::kDppoKl, ReadDppo, true, kLossAggMode, kClamped,
     kBoth},
    {"gspo", Surrogate::kPpoClip, ReadGspo, false, kGspo, kMean, kBoth},
    {"sapo", Surrogate::kSapo, ReadSapo, true, kSeqMeanTokenMean, kClamped,
     kBoth},
    {"gpg", Surrogate::kReinforce, ReadNothing, false, kLossAggMode, kNoKl,
     kNone},
    {"clip_cov", Surrogate::kClipCov, ReadClipCov, false, kLossAggMode, kMean,
     kUpperOnly},
    {"kl_cov", Surrogate::kKlCov, ReadKlCov, false, kLossAggMode, kAbsolute,
     kNone},
    {"geo_mean", Surrogate::kGeoMean, ReadClip, false, kMeanOverRows, kMean,
     kBySign},
    {"dro", Surrogate::kDro, ReadDro, false, kLossAggMode, kMean, kNone},
    {"cispo", Surrogate::kCispo, ReadClip, true, kLossAggMode, kClamped, kBoth},
};

// compute_policy_loss_reinforce, which is not in the registry.
constexpr std::string_view kReinforce = "reinforce";
constexpr std::string_view kBypass = "bypass_mode";
constexpr LossMode kReinforceMode = {
    kReinforce, Surrogate::kReinforce, ReadNothing, false, kLossAggMode, kMean,
    kNone};

// Returns the row of loss_mode, or null and a violation.
const LossMode* FindLossMode(const BlockReader& policy_loss, VerlMode mode) {
  std::vector<std::string_view> names;
  for (const LossMode& row : kLossModes) names.push_back(row.name);
  names.push_back(kBypass);
  names.push_back(kReinforce);
  const auto index = policy_loss.ReadName(
      "loss_mode", mode == VerlMode::kDecoupled ? "vanilla" : kBypass, names);
  if (!index) return nullptr;
  const std::string_view name = names[*index];
  if (mode == VerlMode::kDecoupled) {
    if (*index < std::size(kLossModes)) return &kLossModes[*index];
    policy_loss.Violate("loss_mode", Concat("loss_mode '", name,
                                            "' is a loss of bypass_mode: true, "
                                            "which the block does not set."));
    return nullptr;
  }
  if (name == kReinforce) return &kReinforceMode;
  if (name == kBypass) {
    return mode == VerlMode::kBypassReinforce ? &kReinforceMode
                                              : &kLossModes[0];
  }
  policy_loss.Violate(
      "loss_mode",
      Concat("loss_mode '", name,
             "' does not go with bypass_mode: true: one of verl's trainers "
             "replaces it by 'bypass_mode', the other ignores the bypass. "
             "Write 'bypass_mode', and the loss into loss_type."));
  return nullptr;
}

void ReadSurrogate(const LossMode& mode, const BlockReader& actor,
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
  kl.coefficient = actor.ReadNumber("kl_loss_coef", 0.001, kAnyCoefficient);
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
void MakeReductions(const LossMode& mode, const VerlAggregation& aggregation,
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
void UseCounts(const LossMode& mode, const VerlAggregation& aggregation,
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

void WarnOfReleases(const LossMode& mode, const VerlAggregation& aggregation,
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
  const LossMode* row = FindLossMode(policy_loss, mode);
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
  spec.applies_weight = !bypass || row == &kReinforceMode;
  spec.allow_double_correction = true;
  loss.metrics = {row->ppo_kl, row->clip_fraction};
  loss.corrects = policy_loss.IsNull("loss_mode") ||
                  policy_loss.Find("loss_mode")->string_value() != kReinforce;
  return loss;
}

}  // namespace counterweight::server
