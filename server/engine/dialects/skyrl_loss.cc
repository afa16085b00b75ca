#include "server/engine/dialects/skyrl_loss.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/request_tensors.h"
#include "server/engine/dialects/skyrl_reduction.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using kernels::BatchCount;
using kernels::KlEstimator;
using kernels::KlSpec;
using kernels::kSafetyClamp;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;

constexpr std::string_view kAnchor = "cispo_anchor";
constexpr NumberRange kTemperature{
    .lowest = 0.0, .above = true, .highest = kLargestDouble};
constexpr NumberRange kCoefficient{.lowest = 0.0, .highest = kLargestDouble};

void ReadRegular(const SkyrlLossBlock& block, LossSpec* loss) {
  loss->clip_low = block.shared.ReadNumber("eps_clip_low", 0.2, kNonNegative);
  loss->clip_high = block.shared.ReadNumber("eps_clip_high", 0.2, kNonNegative);
}

void ReadDualClip(const SkyrlLossBlock& block, LossSpec* loss) {
  constexpr NumberRange kAboveOne{.lowest = 1.0, .above = true};
  ReadRegular(block, loss);
  loss->dual_clip = block.shared.ReadNumber("clip_ratio_c", 3.0, kAboveOne);
}

// Gives SkyRL's warning for losses that should be averaged over sequences.
void WarnOfReduction(std::string_view name, const SkyrlLossBlock& block,
                     const LossSpec& loss) {
  if (loss.reduction.count == BatchCount::kRows &&
      loss.reduction.row == RowCount::kTokens) {
    return;
  }
  block.translation->warnings.push_back(
      Concat("SkyRL recommends loss_reduction 'sequence_mean' with "
             "policy_loss_type '",
             name, "'."));
}

void ReadGspo(const SkyrlLossBlock& block, LossSpec* loss) {
  constexpr double kLargestLogRatio = 10.0;
  ReadRegular(block, loss);
  loss->level = LossLevel::kSequenceToken;
  loss->log_ratio_upper = kLargestLogRatio;
  WarnOfReduction("gspo", block, *loss);
}

void ReadSapo(const SkyrlLossBlock& block, LossSpec* loss) {
  loss->tau_positive = block.own.ReadNumber("tau_pos", 1.0, kTemperature);
  loss->tau_negative = block.own.ReadNumber("tau_neg", 1.05, kTemperature);
  WarnOfReduction("sapo", block, *loss);
}

void ReadCispo(const SkyrlLossBlock& block, LossSpec* loss) {
  constexpr std::string_view kAnchors[] = {"old", "rollout"};
  constexpr std::string_view kLow = "cispo_eps_clip_low";
  constexpr std::string_view kHigh = "cispo_eps_clip_high";
  const bool is_new = block.facts.IsSince(kSkyrlCispoAnchor);
  loss->clip_low = block.own.ReadNumber(kLow, is_new ? 1.0 : 0.0, kNonNegative);
  loss->clip_high =
      block.own.ReadNumber(kHigh, is_new ? 4.0 : 5.0, kNonNegative);
  const bool lacks_bound =
      block.own.Find(kLow) == nullptr || block.own.Find(kHigh) == nullptr;
  if (lacks_bound && !block.facts.asked.is_named && block.facts.wants_loss) {
    block.translation->warnings.push_back(Concat(
        block.shared.Path("cispo"), ": releases of SkyRL differ: since ",
        ToString(kSkyrlCispoAnchor),
        " cispo_eps_clip_low is 1 and cispo_eps_clip_high 4 by default, as "
        "here; before, 0 and 5. Name the release to be sure."));
  }
  const auto anchor = block.own.ReadName(kAnchor, kAnchors[0], kAnchors);
  if (!anchor || kAnchors[*anchor] == "old") return;
  loss->source = RatioSource::kCurrentRollout;
  if (block.correction.tis == kernels::Level::kNone) return;
  block.translation->violations.push_back(
      {block.correction.tis_path,
       "cispo_anchor 'rollout' corrects the drift from the rollout policy "
       "already; truncated importance sampling would count it twice. Set "
       "off_policy_correction.tis_ratio_type to null."});
}

void ReadRolloutIs(const SkyrlLossBlock& block, LossSpec* loss) {
  ReadRegular(block, loss);
  loss->source = RatioSource::kCurrentRollout;
}

void ReadDppo(const SkyrlLossBlock& block, LossSpec* loss) {
  constexpr std::string_view kTypes[] = {"binary_tv", "binary_kl"};
  loss->clip_low = block.own.ReadNumber("delta_low", 0.2, kNonNegative);
  loss->clip_high = block.own.ReadNumber("delta_high", 0.2, kNonNegative);
  const auto type = block.own.ReadName("dppo_type", kTypes[0], kTypes);
  if (type && kTypes[*type] == "binary_kl") {
    loss->surrogate = Surrogate::kDppoKl;
    // SkyRL drops what is above a bound, and NaN is not.
    loss->keeps_undefined_divergence = true;
  }
  if (block.facts.has_rollout_log_probs) {
    loss->source = RatioSource::kCurrentRollout;
  }
}

// Share of the tokens; SkyRL selects one at least, for a share of 0 too.
double ReadFraction(const BlockReader& reader, std::string_view key,
                    double missing) {
  constexpr NumberRange kFraction{.lowest = 0.0, .highest = 1.0};
  return std::max(reader.ReadNumber(key, missing, kFraction),
                  std::numeric_limits<double>::min());
}

void ReadClipCov(const SkyrlLossBlock& block, LossSpec* loss) {
  constexpr std::string_view kLower = "clip_cov_lb";
  ReadRegular(block, loss);
  // Scaled advantages enter the covariance.
  loss->prescales_advantages = true;
  loss->covariance_fraction = ReadFraction(block.own, "clip_ratio", 0.0002);
  loss->covariance_lower = block.own.ReadNumber(kLower, 1.0);
  loss->covariance_upper = block.own.ReadNumber("clip_cov_ub", 5.0);
  if (loss->covariance_lower > loss->covariance_upper) {
    block.own.Violate(kLower, Concat(kLower,
                                     " is above clip_cov_ub: SkyRL "
                                     "would select no token."));
  }
}

void ReadKlCov(const SkyrlLossBlock& block, LossSpec* loss) {
  // The term of abs(l) is not scaled.
  loss->prescales_advantages = true;
  loss->covariance_fraction = ReadFraction(block.own, "kl_cov_frac", 0.2);
  loss->covariance_kl_weight =
      block.own.ReadNumber("ppo_kl_coef", 1.0, kCoefficient);
}

// A plain sum like Tinker's: it has no ratio, and advantages, which carry the
// reduction, are sent but unused.
void ReadCrossEntropy(const SkyrlLossBlock& block, LossSpec* loss) {
  loss->source = RatioSource::kCurrentSelf;
  loss->prescales_advantages = false;
  block.translation->groups.clear();
  block.translation->num_groups = 0;
  block.translation->uses_group_ids = false;
  loss->reduction = {BatchCount::kOne, RowCount::kOne, 1.0};
}

constexpr SkyrlLoss kLosses[] = {
    {"regular", Surrogate::kPpoClip, true, true, {}, ReadRegular},
    {"dual_clip", Surrogate::kPpoClip, true, true, {}, ReadDualClip},
    {"gspo", Surrogate::kPpoClip, false, true, {}, ReadGspo},
    {"sapo", Surrogate::kSapo, true, true, kSkyrlSapoFields, ReadSapo},
    {"cispo", Surrogate::kCispo, true, true, kSkyrlCispoFields, ReadCispo},
    {"rollout_is", Surrogate::kRolloutIs, true, true, {}, ReadRolloutIs},
    {"dppo", Surrogate::kDppoTv, true, true, kSkyrlDppoFields, ReadDppo},
    {"clip_cov", Surrogate::kClipCov, false, false, kSkyrlClipCovFields,
     ReadClipCov},
    {"kl_cov", Surrogate::kKlCov, false, false, kSkyrlKlCovFields, ReadKlCov},
    {"cross_entropy",
     Surrogate::kCrossEntropy,
     false,
     false,
     {},
     ReadCrossEntropy},
    {"importance_sampling",
     Surrogate::kImportanceSampling,
     false,
     false,
     {},
     nullptr},
};

// Checks the structs of all losses, also unused ones, for unknown keys.
void CheckLossStructs(const BlockReader& reader, bool ignore_unknown_fields,
                      const RequestFacts& facts, Translation* translation) {
  for (const SkyrlLoss& loss : kLosses) {
    if (loss.fields.empty()) continue;
    const Struct* block = reader.ReadStruct(loss.name);
    if (block == nullptr) continue;
    const BlockReader own(*block, reader.Path(loss.name),
                          &translation->violations);
    own.CheckKeys(
        loss.fields, ignore_unknown_fields,
        [](std::string_view) { return std::string(); }, &translation->warnings);
    if (loss.surrogate == Surrogate::kCispo) {
      RefuseNewSkyrlField(own, kAnchor, facts);
    }
  }
}

// SkyRL adds the penalty by default, but a block without its fields may have no
// reference policy.
KlSpec ReadKl(const BlockReader& reader, const SkyrlLoss& loss,
              const RequestFacts& facts, Translation* translation) {
  constexpr std::string_view kUseKl = "use_kl_loss";
  constexpr std::string_view kInReward = "use_kl_in_reward";
  constexpr std::string_view kEstimators[] = {"k3", "k1", "k2", "abs"};
  constexpr double kK3Clamp = 10.0;
  KlSpec kl;
  const bool in_reward = reader.ReadBool(kInReward, false);
  if (!reader.ReadBool(kUseKl, false)) return kl;
  if (in_reward) {
    reader.Violate(kInReward, Concat(kInReward, " and ", kUseKl,
                                     " are mutually exclusive."));
  }
  const auto estimator =
      reader.ReadName("kl_estimator_type", kEstimators[0], kEstimators);
  kl.coefficient = reader.ReadNumber("kl_loss_coef", 0.001, kCoefficient);
  if (loss.surrogate == Surrogate::kCrossEntropy) {
    translation->warnings.push_back(
        Concat(reader.Path(kUseKl),
               " does nothing: SkyRL adds no KL penalty "
               "to policy_loss_type 'cross_entropy'."));
    return {};
  }
  if (facts.wants_loss) {
    RequireTensor(facts.has_ref_log_probs, "ref_log_probs",
                  "use_kl_loss compares current_log_probs with it",
                  &translation->violations);
  }
  const std::string_view name = kEstimators[estimator.value_or(0)];
  kl.estimator = name == "k1"   ? KlEstimator::kK1
                 : name == "k2" ? KlEstimator::kK2
                 : name == "k3" ? KlEstimator::kK3
                                : KlEstimator::kAbs;
  if (kl.estimator == KlEstimator::kK3) {
    kl.token_clamp = kSafetyClamp;
    kl.value_clamp = kK3Clamp;
  }
  kl.over = TokenSet::kOriginal;
  kl.reduction = {BatchCount::kRows, RowCount::kTokens, 1.0};
  return kl;
}

void RequireTensors(const SkyrlLoss& loss, RatioSource source,
                    const RequestFacts& facts, Violations* violations) {
  const std::string reason =
      Concat("policy_loss_type '", loss.name, "' is computed from it");
  RequireTensor(facts.has_current_log_probs, "current_log_probs", reason,
                violations);
  RequireTensor(facts.has_advantages, "advantages", reason, violations);
  if (source == RatioSource::kCurrentOld) {
    RequireTensor(facts.has_old_log_probs, "old_log_probs", reason, violations);
  } else if (source == RatioSource::kCurrentRollout) {
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", reason,
                  violations);
  }
}

// The source of native loss metrics; SkyRL's use the ratio alone.
RatioSource MetricsSource(const RequestFacts& facts) {
  if (facts.has_old_log_probs) return RatioSource::kCurrentOld;
  return facts.has_rollout_log_probs ? RatioSource::kCurrentRollout
                                     : RatioSource::kCurrentSelf;
}

}  // namespace

void RefuseNewSkyrlField(const BlockReader& reader, std::string_view field,
                         const RequestFacts& facts) {
  if (reader.Find(field) == nullptr || facts.IsSince(kSkyrlCispoAnchor)) return;
  reader.Violate(
      field,
      Concat(field, " is a field of SkyRL since ", ToString(kSkyrlCispoAnchor),
             ", and ", ToString(facts.asked.release), " is asked for."));
}

const SkyrlLoss* ReadSkyrlLossType(const BlockReader& reader) {
  std::vector<std::string_view> names;
  for (const SkyrlLoss& loss : kLosses) names.push_back(loss.name);
  const auto index = reader.ReadName("policy_loss_type", names[0], names);
  return index ? &kLosses[*index] : nullptr;
}

void ReadSkyrlLoss(const BlockReader& reader, const SkyrlLoss& loss,
                   const SkyrlCorrection& correction,
                   bool ignore_unknown_fields, const RequestFacts& facts,
                   Translation* translation) {
  LossSpec spec;
  spec.surrogate = loss.surrogate;
  spec.over = TokenSet::kOriginal;
  spec.seed = facts.seed;
  // SkyRL combines TIS with a ratio of the rollout policy.
  spec.allow_double_correction = true;
  if (loss.is_clamped) {
    spec.log_ratio_lower = -kSafetyClamp;
    spec.log_ratio_upper = kSafetyClamp;
  }
  CheckLossStructs(reader, ignore_unknown_fields, facts, translation);
  ReadSkyrlReduction(reader, facts, &spec, translation);
  if (loss.read != nullptr) {
    const Value* own = reader.Find(loss.name);
    const BlockReader own_reader(
        own == nullptr ? Struct::default_instance() : own->struct_value(),
        reader.Path(loss.name), &translation->violations);
    loss.read({reader, own_reader, correction, facts, translation}, &spec);
  }
  spec.kl = ReadKl(reader, loss, facts, translation);
  // Needed for cispo/ratio_max and _min of an empty mask. Kernels do not
  // measure padding with a penalty like SkyRL's.
  spec.measures_padding = loss.surrogate == Surrogate::kCispo &&
                          spec.kl.estimator == KlEstimator::kNone;
  if (!facts.wants_loss) return;
  RequireTensors(loss, spec.source, facts, &translation->violations);
  spec.metrics_source = MetricsSource(facts);
  translation->spec.loss = spec;
  translation->spec.loss.peer_sums = true;
}

}  // namespace counterweight::server
