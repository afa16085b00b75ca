#include "server/engine/dialects/prime_rl.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/prime_rl_metrics.h"
#include "server/engine/dialects/prime_rl_token_metrics.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::BatchCount;
using kernels::Condition;
using kernels::InputRole;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;

constexpr std::string_view kPrimeRlType = "type";
constexpr std::string_view kPrimeRlLow = "dppo_mask_low";
constexpr std::string_view kPrimeRlHigh = "dppo_mask_high";
constexpr std::string_view kPrimeRlIpo = "ipo_threshold";
constexpr std::string_view kPrimeRlAdvantages = "adv_tau";
constexpr std::string_view kPrimeRlKl = "kl_tau";
constexpr std::string_view kPrimeRlScale = "rl_scale";
constexpr std::string_view kPrimeRlRefScale = "ref_kl_scale";

// Those of PrimeRlType, and one that is refused.
constexpr std::string_view kPrimeRlTypes[] = {"default", "ipo", "ref_kl",
                                              "custom"};

// The fields of each type but type itself.
constexpr std::string_view kPrimeRlDefaultFields[] = {
    kPrimeRlLow, kPrimeRlHigh, kPrimeRlAdvantages, kPrimeRlKl};
constexpr std::string_view kPrimeRlIpoFields[] = {
    kPrimeRlIpo, kPrimeRlAdvantages, kPrimeRlKl};

// Nothing for a type that is refused.
std::optional<PrimeRlType> ReadPrimeRlType(const BlockReader& reader) {
  const auto type =
      reader.ReadName(kPrimeRlType, kPrimeRlTypes[0], kPrimeRlTypes);
  if (!type) return std::nullopt;
  if (kPrimeRlTypes[*type] == "custom") {
    reader.Violate(kPrimeRlType,
                   "type 'custom' names code, which a server cannot run.");
    return std::nullopt;
  }
  return static_cast<PrimeRlType>(*type);
}

std::span<const std::string_view> FieldsOf(PrimeRlType type) {
  switch (type) {
    case PrimeRlType::kDefault:
      return kPrimeRlDefaultFields;
    case PrimeRlType::kIpo:
      return kPrimeRlIpoFields;
    case PrimeRlType::kRefKl:
      break;
  }
  return {};
}

// Each type has a configuration class of its own; ref_kl has constants.
void RefuseFieldsOfOtherTypes(const BlockReader& reader, PrimeRlType type) {
  const std::span<const std::string_view> own = FieldsOf(type);
  for (const std::string_view field : {kPrimeRlLow, kPrimeRlHigh, kPrimeRlIpo,
                                       kPrimeRlAdvantages, kPrimeRlKl}) {
    if (reader.Find(field) == nullptr) continue;
    if (std::find(own.begin(), own.end(), field) != own.end()) continue;
    reader.Violate(
        field,
        Concat(field, " is not of type '",
               kPrimeRlTypes[static_cast<int>(type)], "', which takes ",
               own.empty() ? std::string("no fields") : JoinNames(own), "."));
  }
}

void AddPrimeRlRule(Condition condition, double lower, double upper,
                    std::string_view name, Translation* translation) {
  kernels::RejectionRule rule;
  rule.source = RatioSource::kCurrentRollout;
  rule.estimator = kernels::Estimator::kDifference;
  rule.condition = condition;
  rule.lower = lower;
  rule.upper = upper;
  kernels::CorrectionSpec& spec = translation->spec;
  spec.rules[spec.num_rules++] = rule;
  translation->rule_names.emplace_back(name);
}

void ReadPrimeRlMask(const BlockReader& reader, PrimeRlType type,
                     Translation* translation) {
  if (type == PrimeRlType::kRefKl) {
    AddPrimeRlRule(Condition::kAlways, -0.2, kernels::kUnbounded, "ref_kl",
                   translation);
    return;
  }
  if (type == PrimeRlType::kIpo) {
    const double most = reader.ReadNumber(kPrimeRlIpo, 0.1, kNonNegative);
    AddPrimeRlRule(Condition::kAlways, -most, most, kPrimeRlIpo, translation);
    return;
  }
  const double high = reader.ReadNumber(kPrimeRlHigh, 0.2, kNonNegative);
  const double low = reader.ReadNumber(kPrimeRlLow, 0.2, kNonNegative);
  AddPrimeRlRule(Condition::kPositiveAdvantage, -kernels::kUnbounded, high,
                 kPrimeRlHigh, translation);
  AddPrimeRlRule(Condition::kNonPositiveAdvantage, -low, kernels::kUnbounded,
                 kPrimeRlLow, translation);
}

LossSpec ReadPrimeRlLoss(const BlockReader& reader, PrimeRlType type,
                         const RequestFacts& facts, Translation* translation) {
  constexpr NumberRange kFactor{.lowest = 0.0, .highest = kLargestDouble};
  constexpr NumberRange kScale{
      .lowest = 0.0, .above = true, .highest = kLargestDouble};
  const double advantages = reader.ReadNumber(kPrimeRlAdvantages, 1.0, kFactor);
  const double kl_tau = reader.ReadNumber(kPrimeRlKl, 1e-3, kFactor);
  const bool is_ref_kl = type == PrimeRlType::kRefKl;
  const std::string_view own = is_ref_kl ? kPrimeRlRefScale : kPrimeRlScale;
  const std::string_view other = is_ref_kl ? kPrimeRlScale : kPrimeRlRefScale;
  const auto scale = reader.ReadOptionalNumber(own, kScale);
  if (scale) translation->counts_use.given_count = reader.Path(own);
  if (!reader.IsNull(other)) {
    translation->warnings.push_back(
        Concat(reader.Path(other), " does nothing here: it is ",
               is_ref_kl ? "not " : "", "of type 'ref_kl'."));
  }
  const auto reduction = [&](double factor) {
    return scale ? LossReduction{BatchCount::kOne, RowCount::kOne,
                                 factor / *scale}
                 : LossReduction{BatchCount::kTokens, RowCount::kOne, factor};
  };
  LossSpec loss;
  loss.surrogate = kernels::Surrogate::kImportanceSampling;
  loss.source = RatioSource::kCurrentRollout;
  loss.metrics_source = loss.source;
  loss.over = kernels::TokenSet::kOriginal;
  loss.reduction = reduction(advantages);
  // The loss has the ratio itself, through which its gradient goes.
  loss.applies_weight = false;
  loss.seed = facts.seed;
  if (kl_tau == 0.0) return loss;
  loss.kl.estimator = kernels::KlEstimator::kK2;
  loss.kl.source = RatioSource::kCurrentRollout;
  // prime-rl's square has no 1/2.
  loss.kl.coefficient = 2.0 * kl_tau;
  loss.kl.over = kernels::TokenSet::kOriginal;
  loss.kl.reduction = reduction(1.0);
  return loss;
}

// ref_kl makes its own.
void RequirePrimeRlAdvantages(PrimeRlType type, const RequestFacts& facts,
                              Translation* translation) {
  Violations* const violations = &translation->violations;
  switch (type) {
    case PrimeRlType::kDefault:
      RequireTensor(facts.has_advantages, "advantages",
                    "the bound of the mask follows its sign", violations);
      return;
    case PrimeRlType::kIpo:
      RequireTensor(facts.has_advantages || !facts.wants_loss, "advantages",
                    "the policy loss is computed from it", violations);
      return;
    case PrimeRlType::kRefKl:
      RequireTensor(facts.has_ref_log_probs, "ref_log_probs",
                    "type 'ref_kl' compares it with the current ones",
                    violations);
      translation->derived.differences.push_back(
          {.role = InputRole::kAdvantages,
           .minuend = InputRole::kRef,
           .subtrahend = InputRole::kCurrent});
      return;
  }
}

}  // namespace

Translation TranslatePrimeRl(const Struct& block, bool ignore_unknown_fields,
                             const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kPrimeRlFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  const auto type = ReadPrimeRlType(reader);
  if (!type) return translation;
  RefuseFieldsOfOtherTypes(reader, *type);
  ReadPrimeRlMask(reader, *type, &translation);
  const LossSpec loss = ReadPrimeRlLoss(reader, *type, facts, &translation);
  kernels::CorrectionSpec& spec = translation.spec;
  spec.weight.level = kernels::Level::kToken;
  spec.weight.source = RatioSource::kCurrentRollout;
  spec.drift_source = RatioSource::kCurrentRollout;
  constexpr std::string_view kReason =
      "weights and mask are of current and rollout policy";
  RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                &translation.violations);
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                &translation.violations);
  RequirePrimeRlAdvantages(*type, facts, &translation);
  WarnOfDriftAlone(facts.has_old_log_probs, false, "old_log_probs",
                   &translation.warnings);
  translation.report = [type = *type](const kernels::BatchSums& sums,
                                      MetricMap* metrics, Violations*) {
    AddPrimeRlMetrics(type, sums, metrics);
  };
  translation.token_metrics = [type = *type](const CorrectedTokens& tokens,
                                             const kernels::BatchSums& sums,
                                             MetricMap* metrics) {
    AddPrimeRlTokenMetrics(type, tokens, sums, metrics);
  };
  translation.token_metric_memory = kPrimeRlTokenMemory;
  if (facts.wants_loss) spec.loss = loss;
  return translation;
}

}  // namespace counterweight::server
