#include "server/engine/dialects/slime_loss.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;
using kernels::BatchCount;
using kernels::KlEstimator;
using kernels::KlSpec;
using kernels::kSafetyClamp;
using kernels::LossLevel;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;

constexpr std::string_view kSlimeDivisors = "rollout_mask_sums";
constexpr std::string_view kSlimeRollouts = "step_global_batch_size";
constexpr std::string_view kSlimePerToken = "calculate_per_token_loss";
constexpr std::string_view kSlimeUseOpsm = "use_opsm";
constexpr std::string_view kSlimeUnbiased = "use_unbiased_kl";
constexpr std::string_view kSlimeKlType = "kl_loss_type";
constexpr NumberRange kSlimeCoefficient{.lowest = 0.0,
                                        .highest = kLargestDouble};

void RefuseOtherLosses(const BlockReader& reader) {
  if (reader.ReadOptionalNumber("entropy_coef").value_or(0.0) != 0.0) {
    reader.Violate("entropy_coef",
                   "entropy_coef needs the entropies of whole distributions, "
                   "which requests cannot carry; log-probs of sampled tokens "
                   "do not give them.");
  }
  if (reader.ReadBool("use_opd", false)) {
    reader.Violate("use_opd",
                   "use_opd needs a teacher's log-probs, which requests cannot "
                   "carry.");
  }
  constexpr std::string_view kReducer = "custom_pg_loss_reducer_function_path";
  if (!reader.IsNull(kReducer)) {
    reader.Violate(kReducer,
                   Concat(kReducer, " names code, which a server cannot run."));
  }
}

void ReadSurrogate(const BlockReader& reader, const SlimeSystem& system,
                   SlimeLoss* of, LossSpec* loss) {
  // slime has cispo, the last of them, too.
  constexpr std::string_view kEstimators[] = {"grpo",
                                              "gspo",
                                              "ppo",
                                              "reinforce_plus_plus",
                                              "reinforce_plus_plus_baseline",
                                              "cispo"};
  const auto known =
      std::span(kEstimators).first(std::size(kEstimators) - system.is_miles);
  const auto index =
      reader.ReadName("advantage_estimator", kEstimators[0], known,
                      " Others have losses of their own.");
  const std::string_view name = kEstimators[index.value_or(0)];
  of->is_cispo = name == "cispo";
  of->is_gspo = name == "gspo";
  loss->surrogate = of->is_cispo ? Surrogate::kCispo : Surrogate::kPpoClip;
  if (of->is_gspo) loss->level = LossLevel::kSequence;
  if (system.is_miles) {
    loss->log_ratio_lower = -kSafetyClamp;
    loss->log_ratio_upper = kSafetyClamp;
  }
}

void ReadClips(const BlockReader& reader, const SlimeLoss& of, LossSpec* loss) {
  constexpr NumberRange kAboveOne{.lowest = 1.0, .above = true};
  loss->clip_low = reader.ReadNumber("eps_clip", 0.2, kNonNegative);
  loss->clip_high = reader.ReadOptionalNumber("eps_clip_high", kNonNegative)
                        .value_or(loss->clip_low);
  const auto dual_clip = reader.ReadOptionalNumber("eps_clip_c", kAboveOne);
  if (dual_clip && !of.is_cispo) loss->dual_clip = *dual_clip;
}

// The divisor of each sample; nothing for one of its own tokens.
std::vector<double> ReadDivisors(const BlockReader& reader,
                                 const RequestFacts& facts) {
  if (reader.IsNull(kSlimeDivisors)) return {};
  std::vector<double> divisors;
  const Value& value = *reader.Find(kSlimeDivisors);
  for (const Value& each : value.list_value().values()) {
    const double sum = each.number_value();
    if (!each.has_number_value() || !(sum >= 0.0) || !std::isfinite(sum)) break;
    divisors.push_back(std::max(sum, 1.0));
  }
  const int64_t rows = facts.num_sequences;
  if (static_cast<int64_t>(divisors.size()) == rows &&
      value.list_value().values_size() == rows) {
    return divisors;
  }
  reader.Violate(kSlimeDivisors,
                 Concat(kSlimeDivisors,
                        " must be a list of finite numbers >= 0, the tokens of "
                        "each sequence's rollout, one for each of the ",
                        rows, " sequences."));
  return {};
}

LossReduction ReadReduction(const BlockReader& reader,
                            const RequestFacts& facts, SlimeReduction* of,
                            Translation* translation) {
  of->by_token = reader.ReadBool(kSlimePerToken, false);
  if (!reader.IsNull(kSlimeRollouts))
    of->rollouts = reader.ReadCount(kSlimeRollouts, 1);
  std::vector<double> divisors = ReadDivisors(reader, facts);
  translation->counts_use.divisors_field = reader.Path(kSlimeDivisors);
  if (of->by_token) {
    translation->counts_use.refusal =
        "is not read by calculate_per_token_loss, whose answers are means of "
        "one request; weigh them by its tokens";
    return {BatchCount::kRowTokens, RowCount::kOne, 1.0};
  }
  translation->counts_use.refusal =
      Concat("is not read by this dialect; ", reader.Path(kSlimeRollouts),
             " is the step's number of rollouts");
  const RowCount row = divisors.empty() ? RowCount::kTokens : RowCount::kGiven;
  if (facts.wants_loss) translation->row_divisors = divisors;
  of->divisors = std::move(divisors);
  if (!of->rollouts) return {BatchCount::kRows, row, 1.0};
  return {BatchCount::kOne, row, 1.0 / static_cast<double>(*of->rollouts)};
}

KlSpec ReadKl(const BlockReader& reader, const SlimeSystem& system,
              const SlimeLoss& of, RatioSource source,
              const RequestFacts& facts, Violations* violations) {
  constexpr std::string_view kTypes[] = {"k1", "k2", "k3", "low_var_kl"};
  constexpr std::string_view kCoefficientKey = "kl_loss_coef";
  constexpr std::string_view kRewardKey = "kl_coef";
  constexpr double kLowVarClamp = 10.0;
  KlSpec kl;
  const double coefficient =
      reader.ReadNumber(kCoefficientKey, 0.0, kSlimeCoefficient);
  if (coefficient != 0.0 && reader.ReadNumber(kRewardKey, 0.0) != 0.0) {
    reader.Violate(kRewardKey, "kl_coef and kl_loss_coef exclude each other.");
  }
  const auto type = reader.ReadName(kSlimeKlType, kTypes[0], kTypes);
  const bool is_weighted = reader.ReadBool(kSlimeUnbiased, false);
  if (!reader.ReadBool("use_kl_loss", false)) return kl;
  if (facts.wants_loss) {
    RequireTensor(facts.has_ref_log_probs, "ref_log_probs",
                  "use_kl_loss compares current_log_probs with it", violations);
  }
  constexpr KlEstimator kEstimators[] = {KlEstimator::kK1, KlEstimator::kK2,
                                         KlEstimator::kK3, KlEstimator::kK3};
  kl.estimator = kEstimators[type.value_or(0)];
  kl.coefficient = coefficient;
  kl.importance_weighted = is_weighted;
  if (kTypes[type.value_or(0)] == "low_var_kl") {
    if (system.is_miles) kl.token_clamp = kSafetyClamp;
    kl.value_clamp = kLowVarClamp;
    kl.clamps_product = is_weighted;
  }
  // gspo's policy has the ratio of the row.
  if (is_weighted && of.is_gspo) {
    kl.has_own_ratio = true;
    kl.ratio_source = source;
    kl.ratio_always_moves = true;
  }
  return kl;
}

// OPSM zeroes the surrogate alone, so a weight of 1 bears its zeros.
void AddOpsm(const BlockReader& reader, const SlimePolicies& policies,
             const SlimeCorrection& correction, bool wants_loss,
             Translation* translation) {
  constexpr std::string_view kDelta = "opsm_delta";
  const double delta = reader.ReadNumber(kDelta, 1e-4, kNonNegative);
  const RatioSource source = policies.Loss();
  if (source == RatioSource::kCurrentSelf) {
    translation->warnings.push_back(
        Concat(reader.Path(kSlimeUseOpsm),
               " does nothing: the old log-probs are the current ones."));
    return;
  }
  if (!wants_loss) return;
  kernels::CorrectionSpec& spec = translation->spec;
  kernels::RejectionRule rule;
  rule.source = source;
  rule.aggregation = kernels::Aggregation::kMean;
  rule.condition = kernels::Condition::kNegativeAdvantage;
  rule.effect = kernels::Effect::kZeroWeight;
  rule.lower = -delta;
  spec.rules[spec.num_rules++] = rule;
  translation->rule_names.emplace_back("opsm");
  if (correction.weighs) {
    translation->last_rule_spares_weights = true;
    return;
  }
  spec.weight.level = kernels::Level::kToken;
  spec.weight.source = source;
  spec.weight.bound = kernels::Bound::kTruncate;
  spec.weight.lower = 1.0;
  spec.weight.upper = 1.0;
}

void RequireTensors(const SlimePolicies& policies, const RequestFacts& facts,
                    Violations* violations) {
  constexpr std::string_view kReason = "the policy loss is computed from it";
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                violations);
  RequireTensor(facts.has_advantages, "advantages", kReason, violations);
  if (policies.rollout_is_old) {
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs",
                  "use_rollout_logprobs takes it for the old log-probs",
                  violations);
  }
}

}  // namespace

SlimeLoss ReadSlimeLoss(const BlockReader& reader, const SlimeSystem& system,
                        const SlimePolicies& policies,
                        const SlimeCorrection& correction,
                        const RequestFacts& facts, Translation* translation) {
  SlimeLoss of;
  LossSpec loss;
  loss.source = policies.Loss();
  loss.metrics_source = loss.source;
  loss.over = TokenSet::kOriginal;
  loss.seed = facts.seed;
  loss.allow_double_correction = true;
  loss.peer_sums = true;
  RefuseOtherLosses(reader);
  ReadSurrogate(reader, system, &of, &loss);
  ReadClips(reader, of, &loss);
  loss.reduction = ReadReduction(reader, facts, &of.reduction, translation);
  loss.kl =
      ReadKl(reader, system, of, loss.source, facts, &translation->violations);
  loss.kl.over = TokenSet::kKept;
  loss.kl.reduction = loss.reduction;
  of.has_kl = loss.kl.estimator != KlEstimator::kNone;
  if (reader.ReadBool(kSlimeUseOpsm, false)) {
    const int rules = translation->spec.num_rules;
    AddOpsm(reader, policies, correction, facts.wants_loss, translation);
    of.has_opsm = translation->spec.num_rules > rules;
  }
  if (!facts.wants_loss) return of;
  RequireTensors(policies, facts, &translation->violations);
  translation->spec.loss = loss;
  return of;
}

}  // namespace counterweight::server
