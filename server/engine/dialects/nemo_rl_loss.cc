#include "server/engine/dialects/nemo_rl_loss.h"

#include <string>
#include <string_view>

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::KlEstimator;
using kernels::KlSpec;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;

constexpr std::string_view kNemoRlByToken = "token_level_loss";
constexpr std::string_view kNemoRlBySequence =
    "sequence_level_importance_ratios";
constexpr std::string_view kNemoRlNoRatio = "disable_ppo_ratio";
constexpr std::string_view kNemoRlOnPolicy = "force_on_policy_ratio";
constexpr std::string_view kNemoRlCispo = "use_cispo";
constexpr std::string_view kNemoRlDualClip = "ratio_clip_c";
constexpr std::string_view kNemoRlKl = "reference_policy_kl_penalty";
constexpr std::string_view kNemoRlKlInReward = "use_kl_in_reward";
constexpr std::string_view kNemoRlKlApproximation =
    "use_on_policy_kl_approximation";

// ClippedPGLossFn's constructor asserts these, but for the last, which needs
// other inputs.
void RefuseCombinations(const BlockReader& reader, const NemoRlLoss& of,
                        bool is_cispo) {
  if (of.by_sequence && of.by_token) {
    reader.Violate(kNemoRlBySequence,
                   Concat(kNemoRlBySequence, " is for ", kNemoRlByToken,
                          ": false, which is true by default."));
  }
  const auto exclude = [&](bool is_set, std::string_view key) {
    if (!is_cispo || !is_set) return;
    reader.Violate(key, Concat(kNemoRlCispo, " excludes ", key, "."));
  };
  exclude(of.is_reinforce, kNemoRlNoRatio);
  exclude(of.is_on_policy, kNemoRlOnPolicy);
  exclude(of.by_sequence, kNemoRlBySequence);
  exclude(!reader.IsNull(kNemoRlDualClip), kNemoRlDualClip);
  if (is_cispo && !of.by_token) {
    reader.Violate(kNemoRlByToken,
                   Concat(kNemoRlCispo, " needs ", kNemoRlByToken, ": true."));
  }
  constexpr std::string_view kPositiveWeight = "positive_example_nll_weight";
  if (reader.ReadNumber(kPositiveWeight, 0.0) != 0.0) {
    reader.Violate(kPositiveWeight,
                   Concat(kPositiveWeight,
                          " needs the rewards of samples, which requests "
                          "cannot carry; 0 is the loss without it."));
  }
}

void ReadSurrogate(const BlockReader& reader, bool is_cispo,
                   std::vector<std::string>* warnings, NemoRlLoss* of) {
  constexpr NumberRange kAboveOne{.lowest = 1.0, .above = true};
  LossSpec& loss = of->spec;
  loss.clip_low = reader.ReadNumber("ratio_clip_min", 0.2, kNonNegative);
  loss.clip_high = reader.ReadNumber("ratio_clip_max", 0.2, kNonNegative);
  const auto dual_clip = reader.ReadOptionalNumber(kNemoRlDualClip, kAboveOne);
  if (of->is_reinforce) {
    loss.surrogate = Surrogate::kReinforce;
  } else if (of->is_on_policy) {
    loss.surrogate = Surrogate::kImportanceSampling;
  } else {
    loss.surrogate = is_cispo ? Surrogate::kCispo : Surrogate::kPpoClip;
    if (of->by_sequence) loss.level = kernels::LossLevel::kSequence;
    if (dual_clip && !is_cispo) loss.dual_clip = *dual_clip;
  }
  if (dual_clip && (of->is_reinforce || of->is_on_policy)) {
    warnings->push_back(Concat(reader.Path(kNemoRlDualClip),
                               " can never bind without a ratio of policies."));
  }
  loss.source =
      of->is_on_policy ? RatioSource::kCurrentSelf : RatioSource::kCurrentOld;
  loss.metrics_source = loss.source;
}

LossReduction ReadReduction(const BlockReader& reader, NemoRlLoss* of,
                            Translation* translation) {
  constexpr std::string_view kTokens = "global_valid_toks";
  constexpr std::string_view kSequences = "global_valid_seqs";
  of->tokens = reader.ReadOptionalNumber(kTokens, kNonNegative);
  of->sequences = reader.ReadOptionalNumber(kSequences, kNonNegative);
  const auto& given = of->by_token ? of->tokens : of->sequences;
  const RowCount row = of->by_token ? RowCount::kOne : RowCount::kTokens;
  if (given) {
    translation->counts_use.given_count =
        reader.Path(of->by_token ? kTokens : kSequences);
    return {BatchCount::kOne, row, 1.0 / (*given + kNemoRlEpsilon)};
  }
  return {of->by_token ? BatchCount::kTokens : BatchCount::kNonemptyRows, row,
          1.0};
}

KlSpec ReadKl(const BlockReader& reader, const RequestFacts& facts,
              Translation* translation, KlEstimator* type) {
  constexpr std::string_view kTypes[] = {"k1", "k2", "k3"};
  constexpr KlEstimator kEstimators[] = {KlEstimator::kK1, KlEstimator::kK2,
                                         KlEstimator::kK3};
  constexpr NumberRange kCoefficient{.lowest = 0.0, .highest = kLargestDouble};
  constexpr double kDefaultPenalty = 0.01;
  *type = kEstimators[reader.ReadName("reference_policy_kl_type", "k3", kTypes)
                          .value_or(2)];
  const auto clamp = [&](std::string_view key, double missing) {
    if (reader.Find(key) == nullptr) return missing;
    return reader.ReadOptionalNumber(key, kPositive)
        .value_or(kernels::kUnbounded);
  };
  KlSpec kl;
  kl.token_clamp = clamp("kl_input_clamp_value", 20.0);
  kl.value_clamp = clamp("kl_output_clamp_value", 10.0);
  kl.coefficient = reader.ReadNumber(kNemoRlKl, kDefaultPenalty, kCoefficient);
  const bool approximates = reader.ReadBool(kNemoRlKlApproximation, false);
  const bool is_in_reward = reader.ReadBool(kNemoRlKlInReward, false);
  if (is_in_reward && kl.coefficient != 0.0) {
    translation->warnings.push_back(
        Concat(reader.Path(kNemoRlKlInReward),
               " leaves the loss without a KL penalty: it is in the reward."));
  }
  if (is_in_reward || kl.coefficient == 0.0) {
    if (approximates) {
      translation->warnings.push_back(
          Concat(reader.Path(kNemoRlKlApproximation),
                 " does nothing without a KL penalty of the loss."));
    }
    return {};
  }
  if (facts.wants_loss) {
    RequireTensor(facts.has_ref_log_probs, "ref_log_probs",
                  "reference_policy_kl_penalty, which is 0.01 by default, "
                  "compares current_log_probs with it",
                  &translation->violations);
    if (approximates) {
      RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs",
                    "use_on_policy_kl_approximation compares with it",
                    &translation->violations);
    }
  }
  kl.estimator = *type;
  kl.importance_weighted = true;
  kl.has_own_ratio = true;
  kl.ratio_source =
      approximates ? RatioSource::kCurrentRollout : RatioSource::kCurrentSelf;
  kl.clamps_product = true;
  return kl;
}

void RequireTensors(const NemoRlLoss& of, const RequestFacts& facts,
                    Violations* violations) {
  constexpr std::string_view kReason = "the policy loss is computed from it";
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                violations);
  RequireTensor(facts.has_advantages, "advantages", kReason, violations);
  RequireTensor(facts.has_old_log_probs || of.is_on_policy || of.is_reinforce,
                "old_log_probs", "the policy's ratio is to it", violations);
}

}  // namespace

NemoRlLoss ReadNemoRlLoss(const BlockReader& reader, const RequestFacts& facts,
                          Translation* translation) {
  NemoRlLoss of;
  of.by_token = reader.ReadBool(kNemoRlByToken, true);
  of.by_sequence = reader.ReadBool(kNemoRlBySequence, false);
  of.is_reinforce = reader.ReadBool(kNemoRlNoRatio, false);
  of.is_on_policy = reader.ReadBool(kNemoRlOnPolicy, false);
  const bool is_cispo = reader.ReadBool(kNemoRlCispo, false);
  RefuseCombinations(reader, of, is_cispo);
  // The forced ratio is read first.
  of.is_reinforce = of.is_reinforce && !of.is_on_policy;
  ReadSurrogate(reader, is_cispo, &translation->warnings, &of);
  LossSpec& loss = of.spec;
  loss.over = kernels::TokenSet::kOriginal;
  loss.reduction = ReadReduction(reader, &of, translation);
  loss.kl = ReadKl(reader, facts, translation, &of.kl_type);
  loss.kl.over = kernels::TokenSet::kOriginal;
  loss.kl.reduction = loss.reduction;
  loss.seed = facts.seed;
  loss.allow_double_correction = true;
  loss.peer_sums = true;
  if (!facts.wants_loss) return of;
  RequireTensors(of, facts, &translation->violations);
  translation->spec.loss = loss;
  return of;
}

}  // namespace counterweight::server
