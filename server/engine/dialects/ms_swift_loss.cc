#include "server/engine/dialects/ms_swift_loss.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::KlSpec;
using kernels::LossLevel;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;

constexpr std::string_view kMsSwiftLossType = "loss_type";
constexpr std::string_view kMsSwiftEpsilonHigh = "epsilon_high";
constexpr std::string_view kMsSwiftItems = "num_items_in_batch";
constexpr std::string_view kMsSwiftAccumulation = "gradient_accumulation_steps";
constexpr std::string_view kMsSwiftMicrobatches = "num_microbatches";
constexpr std::string_view kMsSwiftRanks = "dp_size";

MsSwiftLossType ReadType(const BlockReader& reader) {
  // The last two are refused.
  constexpr std::string_view kTypes[] = {"grpo",  "bnpo", "dr_grpo", "dapo",
                                         "cispo", "sapo", "real",    "fipo"};
  constexpr size_t kComputed = std::size(kTypes) - 2;
  const size_t type =
      reader.ReadName(kMsSwiftLossType, kTypes[0], kTypes).value_or(0);
  if (type < kComputed) return static_cast<MsSwiftLossType>(type);
  reader.Violate(kMsSwiftLossType,
                 kTypes[type] == "real"
                     ? "loss_type 'real' is not computed yet: it couples the "
                       "sequences of a group."
                     : "loss_type 'fipo' is not computed yet: its weights are "
                       "discounted sums of later log ratios.");
  return MsSwiftLossType::kGrpo;
}

void ReadCispo(const BlockReader& reader, double cap,
               std::vector<std::string>* warnings, LossSpec* loss) {
  loss->surrogate = Surrogate::kCispo;
  loss->clip_low = 1.0;
  loss->clip_high = cap - 1.0;
  if (cap < 1.0) {
    warnings->push_back(Concat(
        reader.Path(kMsSwiftEpsilonHigh),
        " is the largest ratio itself with loss_type 'cispo': ",
        FormatNumber(cap), " caps even the ratio 1; absent it is epsilon."));
  }
}

void ReadSurrogate(const BlockReader& reader, MsSwiftLossType type,
                   std::vector<std::string>* warnings, LossSpec* loss) {
  constexpr std::string_view kLevels[] = {"token", "sequence",
                                          "sequence_token"};
  constexpr LossLevel kLevelOf[] = {LossLevel::kToken, LossLevel::kSequence,
                                    LossLevel::kSequenceToken};
  loss->level =
      kLevelOf[reader.ReadName("importance_sampling_level", kLevels[0], kLevels)
                   .value_or(0)];
  const double epsilon = reader.ReadNumber("epsilon", 0.2, kNonNegative);
  const double high =
      reader.ReadOptionalNumber(kMsSwiftEpsilonHigh, kNonNegative)
          .value_or(epsilon);
  const auto delta = reader.ReadOptionalNumber("delta", kPositive);
  loss->tau_positive = reader.ReadNumber("tau_pos", 1.0, kPositive);
  loss->tau_negative = reader.ReadNumber("tau_neg", 1.05, kPositive);
  if (type == MsSwiftLossType::kCispo) {
    ReadCispo(reader, high, warnings, loss);
    return;
  }
  if (type == MsSwiftLossType::kSapo) {
    loss->surrogate = Surrogate::kSapo;
    return;
  }
  loss->surrogate = Surrogate::kPpoClip;
  loss->clip_low = epsilon;
  loss->clip_high = high;
  if (delta) loss->ratio_cap = *delta;
}

// num_items_in_batch over the ranks, and what undoes other divisions.
LossReduction ByItems(const BlockReader& reader, bool is_megatron,
                      Translation* translation) {
  const int64_t accumulation = reader.ReadCount(kMsSwiftAccumulation, 1);
  const int64_t microbatches = reader.ReadCount(kMsSwiftMicrobatches, 1);
  const int64_t ranks = reader.ReadCount(kMsSwiftRanks, 1);
  const auto factor =
      static_cast<double>(is_megatron ? microbatches : accumulation);
  if (reader.IsNull(kMsSwiftItems)) {
    if (is_megatron) {
      reader.Violate(kMsSwiftItems, Concat(kMsSwiftItems,
                                           " is required with backend "
                                           "'megatron', whose loss divides by "
                                           "the step's tokens."));
    }
    return {BatchCount::kTokens, RowCount::kOne, factor};
  }
  const auto items = static_cast<double>(reader.ReadCount(kMsSwiftItems, 1));
  translation->counts_use.given_count = reader.Path(kMsSwiftItems);
  const double divisor =
      is_megatron ? std::max(items / static_cast<double>(ranks), 1.0) : items;
  return {BatchCount::kOne, RowCount::kOne, factor / divisor};
}

LossReduction ReadReduction(const BlockReader& reader, const MsSwiftLoss& of,
                            Translation* translation) {
  const bool divides_by_items =
      of.type == MsSwiftLossType::kDapo || of.type == MsSwiftLossType::kCispo ||
      (of.is_megatron && of.type == MsSwiftLossType::kBnpo);
  if (divides_by_items) return ByItems(reader, of.is_megatron, translation);
  translation->counts_use.refusal =
      "is not read by this loss_type, which ms-swift averages within a "
      "process";
  if (of.type == MsSwiftLossType::kBnpo) {
    return {BatchCount::kKeptTokens, RowCount::kOne, 1.0};
  }
  if (of.type == MsSwiftLossType::kDrGrpo) {
    const auto length =
        static_cast<double>(reader.ReadCount("max_completion_length", 512));
    return {BatchCount::kRows, RowCount::kOne, 1.0 / length};
  }
  return {BatchCount::kRows, RowCount::kKeptTokens, 1.0};
}

KlSpec ReadKl(const BlockReader& reader, bool weighs) {
  constexpr NumberRange kCoefficient{.lowest = 0.0, .highest = kLargestDouble};
  constexpr double kDefaultBeta = 0.04;
  constexpr double kInputClamp = 20.0;
  constexpr double kOutputClamp = 10.0;
  KlSpec kl;
  kl.coefficient = reader.ReadNumber("beta", kDefaultBeta, kCoefficient);
  if (kl.coefficient == 0.0) return kl;
  kl.estimator = kernels::KlEstimator::kK3;
  kl.token_clamp = kInputClamp;
  kl.value_clamp = kOutputClamp;
  kl.has_weight = weighs;
  return kl;
}

void RequireTensors(bool has_kl, const RequestFacts& facts,
                    Violations* violations) {
  constexpr std::string_view kReason = "the policy loss is computed from it";
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                violations);
  RequireTensor(facts.has_advantages, "advantages", kReason, violations);
  RequireTensor(!has_kl || facts.has_ref_log_probs, "ref_log_probs",
                "beta, which is 0.04 by default, is not 0", violations);
}

}  // namespace

MsSwiftLoss ReadMsSwiftLoss(const BlockReader& reader,
                            const RequestFacts& facts, bool weighs,
                            Translation* translation) {
  constexpr std::string_view kBackends[] = {"transformers", "megatron"};
  MsSwiftLoss of;
  of.type = ReadType(reader);
  of.is_megatron =
      !reader.IsNull("backend") &&
      reader.ReadName("backend", kBackends[0], kBackends).value_or(0) == 1;
  LossSpec& loss = of.spec;
  ReadSurrogate(reader, of.type, &translation->warnings, &loss);
  loss.source = facts.has_old_log_probs ? RatioSource::kCurrentOld
                                        : RatioSource::kCurrentSelf;
  loss.metrics_source = loss.source;
  loss.over = kernels::TokenSet::kOriginal;
  loss.reduction = ReadReduction(reader, of, translation);
  loss.kl = ReadKl(reader, weighs);
  loss.kl.over = kernels::TokenSet::kKept;
  loss.kl.reduction = loss.reduction;
  loss.seed = facts.seed;
  loss.allow_double_correction = true;
  loss.peer_sums = true;
  if (!facts.wants_loss) return of;
  RequireTensors(loss.kl.estimator != kernels::KlEstimator::kNone, facts,
                 &translation->violations);
  translation->spec.loss = loss;
  return of;
}

}  // namespace counterweight::server
