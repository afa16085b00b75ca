#include "server/engine/dialects/areal_loss.h"

#include <string>
#include <string_view>

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using kernels::LossLevel;
using kernels::LossSpec;
using kernels::Surrogate;
using kernels::TokenSet;

constexpr std::string_view kArealSapo = "use_sapo_loss";
constexpr std::string_view kArealCispo = "use_cispo_loss";
constexpr std::string_view kArealEpsHigh = "eps_clip_higher";
constexpr std::string_view kArealDualClip = "c_clip";
constexpr std::string_view kArealLossLevel = "importance_sampling_level";

ArealLossType ReadArealLossType(const BlockReader& reader,
                                const ArealPolicies& policies) {
  const bool is_sapo = reader.ReadBool(kArealSapo, false);
  const bool is_cispo = reader.ReadBool(kArealCispo, false);
  if (is_sapo && is_cispo) {
    reader.Violate(kArealCispo,
                   Concat(kArealCispo, " excludes ", kArealSapo, "."));
  }
  if (is_sapo && policies.is_decoupled) {
    reader.Violate("use_decoupled_loss",
                   Concat(kArealSapo, " excludes use_decoupled_loss."));
  }
  if (is_sapo) return ArealLossType::kSapo;
  return is_cispo ? ArealLossType::kCispo : ArealLossType::kPpo;
}

void ReadArealClips(const BlockReader& reader, ArealLossType type,
                    std::vector<std::string>* warnings, LossSpec* loss) {
  constexpr NumberRange kAboveOne{.lowest = 1.0, .above = true};
  const bool is_cispo = type == ArealLossType::kCispo;
  const double low = reader.ReadNumber("eps_clip", 0.2, kNonNegative);
  const auto high = reader.ReadOptionalNumber(
      kArealEpsHigh, is_cispo ? kPositive : kNonNegative);
  const auto dual_clip = reader.ReadOptionalNumber(kArealDualClip, kAboveOne);
  if (is_cispo && reader.IsNull(kArealEpsHigh)) {
    reader.Violate(kArealEpsHigh,
                   Concat(kArealCispo, " needs ", kArealEpsHigh, " > 0."));
  }
  if (dual_clip && type != ArealLossType::kPpo) {
    warnings->push_back(Concat(reader.Path(kArealDualClip),
                               " does nothing with SAPO and CISPO."));
  }
  if (type == ArealLossType::kSapo) return;
  loss->clip_low = low;
  loss->clip_high = high.value_or(low);
  if (dual_clip && type == ArealLossType::kPpo) loss->dual_clip = *dual_clip;
}

}  // namespace

ArealLoss ReadArealLoss(const BlockReader& reader,
                        const ArealPolicies& policies,
                        const RequestFacts& facts, Translation* translation) {
  constexpr std::string_view kM2po = "m2_threshold";
  constexpr std::string_view kArealLevels[] = {"token", "sequence"};
  constexpr Surrogate kSurrogates[] = {Surrogate::kPpoClip, Surrogate::kSapo,
                                       Surrogate::kCispo};
  ArealLoss of;
  of.type = ReadArealLossType(reader, policies);
  LossSpec& loss = of.spec;
  loss.surrogate = kSurrogates[static_cast<size_t>(of.type)];
  ReadArealClips(reader, of.type, &translation->warnings, &loss);
  loss.tau_positive = reader.ReadNumber("sapo_tau_pos", 1.0, kPositive);
  loss.tau_negative = reader.ReadNumber("sapo_tau_neg", 1.05, kPositive);
  const auto level =
      reader.ReadName(kArealLossLevel, kArealLevels[0], kArealLevels);
  if (level == size_t{1}) {
    loss.level = LossLevel::kSequence;
    loss.averages_advantages = true;
  }
  if (of.by_sequence() && of.type == ArealLossType::kCispo) {
    reader.Violate(kArealLossLevel,
                   Concat(kArealCispo, " goes with level 'token' only."));
  }
  if (!reader.IsNull(kM2po)) {
    reader.Violate(kM2po,
                   Concat(kM2po,
                          " is not computed yet: it keeps tokens by their rank "
                          "in the whole batch; null leaves it out."));
  }
  loss.source = policies.Loss();
  loss.metrics_source = loss.source;
  loss.over =
      of.type == ArealLossType::kSapo ? TokenSet::kOriginal : TokenSet::kKept;
  loss.reduction = {kernels::BatchCount::kTokens, kernels::RowCount::kOne, 1.0};
  loss.seed = facts.seed;
  loss.allow_double_correction = true;
  loss.peer_sums = true;
  if (!facts.wants_loss) return of;
  constexpr std::string_view kReason = "the policy loss is computed from it";
  RequirePair(loss.source, facts, kReason, &translation->violations);
  RequireTensor(facts.has_advantages, "advantages", kReason,
                &translation->violations);
  translation->spec.loss = loss;
  return of;
}

}  // namespace counterweight::server
