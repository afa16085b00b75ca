#include "server/engine/dialects/verl_loss_modes.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace counterweight::server {
namespace {

using kernels::LossLevel;
using kernels::LossSpec;
using kernels::Surrogate;
using enum VerlLossAggregation;
using enum VerlClipFraction;
constexpr auto kNoKl = VerlPpoKl::kNone;
constexpr auto kMean = VerlPpoKl::kMean;
constexpr auto kClamped = VerlPpoKl::kClampedMean;
constexpr auto kAbsolute = VerlPpoKl::kAbsoluteMean;

constexpr NumberRange kFraction{.lowest = 0.0, .above = true, .highest = 1.0};
constexpr NumberRange kScale{
    .lowest = 0.0, .above = true, .highest = kVerlCoefficient.highest};

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
          : policy_loss.ReadOptionalNumber("ppo_kl_coef", kVerlCoefficient)
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

constexpr VerlLossMode kLossModes[] = {
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

constexpr std::string_view kBypass = "bypass_mode";
// compute_policy_loss_reinforce, which is not in the registry.
constexpr VerlLossMode kReinforceMode = {kVerlReinforce, Surrogate::kReinforce,
                                         ReadNothing,    false,
                                         kLossAggMode,   kMean,
                                         kNone};

}  // namespace

const VerlLossMode* FindVerlLossMode(const BlockReader& policy_loss,
                                     VerlMode mode) {
  std::vector<std::string_view> names;
  for (const VerlLossMode& row : kLossModes) names.push_back(row.name);
  names.push_back(kBypass);
  names.push_back(kVerlReinforce);
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
  if (name == kVerlReinforce) return &kReinforceMode;
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

}  // namespace counterweight::server
