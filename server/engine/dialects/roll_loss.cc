#include "server/engine/dialects/roll_loss.h"

#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;

constexpr std::string_view kRollVariant = "pg_variant";
constexpr std::string_view kRollAggregation = "loss_agg_mode";
constexpr NumberRange kRollFactor{.lowest = 0.0, .highest = kLargestDouble};

void RefuseOtherRollLosses(const BlockReader& reader) {
  if (reader.ReadOptionalNumber("entropy_loss_coef").value_or(0.0) != 0.0) {
    reader.Violate("entropy_loss_coef",
                   "entropy_loss_coef needs the entropies of whole "
                   "distributions, which requests cannot carry.");
  }
  if (reader.ReadBool("difficulty_loss_weight", false)) {
    reader.Violate("difficulty_loss_weight",
                   "difficulty_loss_weight needs the difficulties of prompts, "
                   "which requests cannot carry.");
  }
  if (reader.ReadBool("length_loss_weight", false)) {
    reader.Violate("length_loss_weight",
                   "length_loss_weight is not computed yet: its factors are of "
                   "all rows' kept lengths.");
  }
  constexpr std::string_view kRatioType = "ratio_type";
  constexpr std::string_view kTypes[] = {"token", "segment"};
  if (reader.ReadName(kRatioType, kTypes[0], kTypes) == size_t{1}) {
    reader.Violate(kRatioType,
                   "ratio_type 'segment' is not computed yet: its ratios are "
                   "means over runs of tokens.");
  }
}

// At `reader`'s own pg_variant.
RollVariant ReadRollVariantAt(const BlockReader& reader) {
  // The last one is refused.
  constexpr std::string_view kVariants[] = {"vanilla", "ppo",    "tis",
                                            "cispo",   "kimi15", "topr"};
  if (reader.IsNull(kRollVariant)) return RollVariant::kWorker;
  const size_t variant =
      reader.ReadName(kRollVariant, kVariants[0], kVariants).value_or(0);
  if (kVariants[variant] != "topr") return static_cast<RollVariant>(variant);
  reader.Violate(kRollVariant,
                 "pg_variant 'topr' needs the scores of samples, which "
                 "requests cannot carry.");
  return RollVariant::kVanilla;
}

// A class that reads pg_variant: ROLL's, or one of that name.
bool IsRollPgWorker(std::string_view worker) {
  return worker.find("pg_worker") != std::string_view::npos ||
         worker.ends_with("PGWorker");
}

// ROLL's own tree has the variant in actor_train, for the workers that read it.
RollVariant ReadRollVariant(const BlockReader& reader,
                            Translation* translation) {
  constexpr std::string_view kActor = "actor_train";
  constexpr std::string_view kWorkerClass = "worker_cls";
  const google::protobuf::Struct* actor = reader.ReadStruct(kActor);
  if (actor == nullptr) return ReadRollVariantAt(reader);
  const BlockReader train(*actor, reader.Path(kActor),
                          &translation->violations);
  const bool has_variant = !train.IsNull(kWorkerClass) &&
                           IsRollPgWorker(train.ReadString(kWorkerClass, ""));
  RollVariant variant = RollVariant::kWorker;
  if (has_variant) {
    variant = train.IsNull(kRollVariant) ? RollVariant::kVanilla
                                         : ReadRollVariantAt(train);
  } else if (!train.IsNull(kRollVariant)) {
    translation->warnings.push_back(
        Concat(train.Path(kRollVariant),
               " does nothing: the worker of worker_cls does not read it."));
  }
  if (!reader.IsNull(kRollVariant) && ReadRollVariantAt(reader) != variant) {
    reader.Violate(kRollVariant,
                   "pg_variant is not actor_train's, which ROLL reads, by a "
                   "worker_cls such as ActorPGWorker.");
  }
  return variant;
}

void ReadRollPpo(const BlockReader& reader, LossSpec* loss) {
  const double clip = reader.ReadNumber("pg_clip", 0.2, kNonNegative);
  const double low = reader.ReadNumber("pg_clip_low", 0.2, kNonNegative);
  const double high = reader.ReadNumber("pg_clip_high", 0.2, kNonNegative);
  const bool has_range = reader.ReadBool("use_pg_clip_range", false);
  const bool has_dual_clip = reader.ReadBool("dual_clip_loss", false);
  loss->surrogate = Surrogate::kPpoClip;
  loss->clip_low = has_range ? low : clip;
  loss->clip_high = has_range ? high : clip;
  if (!has_dual_clip) return;
  if (clip == 0.0) {
    reader.Violate("pg_clip",
                   "pg_clip must be > 0 with dual_clip_loss, whose factor is "
                   "1 + 2 pg_clip.");
    return;
  }
  loss->dual_clip = 1.0 + 2.0 * clip;
}

void ReadRollCispo(const BlockReader& reader, LossSpec* loss) {
  constexpr std::string_view kMask = "cispo_use_unified_mask";
  loss->surrogate = Surrogate::kCispo;
  loss->clip_low = reader.ReadNumber("cispo_epsilon_low", 0.1, kNonNegative);
  loss->clip_high = reader.ReadNumber("cispo_epsilon_high", 0.1, kNonNegative);
  if (reader.ReadBool(kMask, false)) {
    reader.Violate(kMask, Concat(kMask,
                                 " is not computed yet: the loss is 0 where "
                                 "the clip would stop an update."));
  }
}

void ReadRollTis(const BlockReader& reader, LossSpec* loss) {
  constexpr std::string_view kLow = "tis_lower_bound";
  constexpr NumberRange kAtMostOne{.lowest = 0.0, .highest = 1.0};
  const double low = reader.ReadNumber(kLow, 0.0, kAtMostOne);
  const double high = reader.ReadNumber("tis_upper_bound", 1.0, kPositive);
  if (low > high) {
    reader.Violate(
        kLow, Concat(kLow, " ", FormatNumber(low), " is above tis_upper_bound ",
                     FormatNumber(high), "."));
  }
  loss->surrogate = Surrogate::kCispo;
  loss->clip_low = 1.0 - low;
  loss->clip_high = high - 1.0;
}

// ActorPGWorker, which has the variants, takes tokens' ratios whatever the
// field says.
void ReadRollLevel(const BlockReader& reader, RollVariant variant,
                   std::vector<std::string>* warnings, LossSpec* loss) {
  constexpr std::string_view kRatioLevel = "importance_sampling";
  constexpr std::string_view kLevels[] = {"token", "seq"};
  const auto level = reader.ReadName(kRatioLevel, kLevels[0], kLevels);
  if (level != size_t{1}) return;
  if (variant == RollVariant::kWorker) {
    loss->level = kernels::LossLevel::kSequence;
    return;
  }
  warnings->push_back(Concat(reader.Path(kRatioLevel), " does nothing with ",
                             kRollVariant, ", whose ratios are of tokens."));
}

void ReadRollSurrogate(const BlockReader& reader, RollVariant variant,
                       LossSpec* loss) {
  switch (variant) {
    case RollVariant::kWorker:
    case RollVariant::kPpo:
      ReadRollPpo(reader, loss);
      return;
    case RollVariant::kTis:
      ReadRollTis(reader, loss);
      return;
    case RollVariant::kCispo:
      ReadRollCispo(reader, loss);
      return;
    case RollVariant::kVanilla:
      loss->surrogate = Surrogate::kReinforce;
      return;
    case RollVariant::kKimi15:
      loss->surrogate = Surrogate::kDro;
      loss->beta = reader.ReadNumber("kimi15_tau", 0.1, kPositive);
      return;
  }
}

LossReduction ReadRollReduction(const BlockReader& reader,
                                const RequestFacts& facts,
                                RollAggregation* aggregation) {
  constexpr std::string_view kModes[] = {
      "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm",
      "token-mean"};
  const auto mode = reader.ReadName(kRollAggregation, kModes[0], kModes);
  *aggregation = static_cast<RollAggregation>(mode.value_or(0));
  switch (*aggregation) {
    case RollAggregation::kSeqMeanTokenMean:
      return {BatchCount::kNonemptyRows, RowCount::kKeptTokens, 1.0};
    case RollAggregation::kSeqMeanTokenSum:
      return {BatchCount::kNonemptyRows, RowCount::kOne, 1.0};
    case RollAggregation::kSeqMeanTokenSumNorm: {
      if (!facts.wants_loss) break;
      const auto width = static_cast<double>(int64_t{facts.padded_length});
      return {BatchCount::kOne, RowCount::kOne, width > 0 ? 1.0 / width : 0.0};
    }
    case RollAggregation::kTokenMean:
      return {BatchCount::kTokens, RowCount::kOne, 1.0};
  }
  return {};
}

kernels::KlSpec ReadRollKl(const BlockReader& reader, double factor,
                           const RequestFacts& facts, Violations* violations) {
  constexpr double kValueClamp = 10.0;
  kernels::KlSpec kl;
  const double coefficient =
      reader.ReadNumber("kl_loss_coef", 0.0, kRollFactor);
  if (!reader.ReadBool("use_kl_loss", false)) return kl;
  if (facts.wants_loss) {
    RequireTensor(facts.has_ref_log_probs, "ref_log_probs",
                  "use_kl_loss compares current_log_probs with it", violations);
  }
  kl.estimator = kernels::KlEstimator::kK3;
  kl.value_clamp = kValueClamp;
  kl.coefficient = coefficient * factor;
  return kl;
}

}  // namespace

RollLoss ReadRollLoss(const BlockReader& reader, const RequestFacts& facts,
                      Translation* translation) {
  RollLoss of;
  RefuseOtherRollLosses(reader);
  of.variant = ReadRollVariant(reader, translation);
  of.coefficient = reader.ReadNumber("rl_loss_coef", 1.0, kRollFactor);
  LossSpec& loss = of.spec;
  ReadRollLevel(reader, of.variant, &translation->warnings, &loss);
  ReadRollSurrogate(reader, of.variant, &loss);
  loss.over = TokenSet::kKept;
  loss.reduction = ReadRollReduction(reader, facts, &of.aggregation);
  loss.counts_dropped = of.aggregation == RollAggregation::kTokenMean;
  loss.kl = ReadRollKl(reader, of.coefficient, facts, &translation->violations);
  loss.kl.over = TokenSet::kKept;
  loss.kl.reduction = loss.reduction;
  loss.reduction.scale *= of.coefficient;
  loss.seed = facts.seed;
  loss.allow_double_correction = true;
  loss.peer_sums = true;
  if (!facts.wants_loss) return of;
  constexpr std::string_view kReason = "the policy loss is computed from it";
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                &translation->violations);
  RequireTensor(facts.has_advantages, "advantages", kReason,
                &translation->violations);
  RequireTensor(facts.has_old_log_probs, "old_log_probs",
                "the policy's ratio is to it", &translation->violations);
  translation->spec.loss = loss;
  return of;
}

}  // namespace counterweight::server
