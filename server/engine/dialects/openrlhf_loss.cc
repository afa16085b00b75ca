#include "server/engine/dialects/openrlhf_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "kernels/loss_spec.h"
#include "server/engine/dialects/releases.h"
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

// The arguments of aggregate_loss.
struct Counts {
  double processes = 1.0;
  std::optional<double> tokens;
  std::optional<double> samples;
  // CorrectRequest.global_counts takes their place.
  bool are_requests = false;
};

Counts ReadCounts(const BlockReader& reader, const RequestFacts& facts,
                  CountsUse* use) {
  constexpr NumberRange kAtLeastOne{
      .lowest = 1.0, .highest = std::numeric_limits<double>::max()};
  Counts counts;
  counts.processes = static_cast<double>(reader.ReadCount("dp_size", 1));
  counts.tokens = reader.ReadOptionalNumber("batch_num_tokens", kAtLeastOne);
  counts.samples = reader.ReadOptionalNumber("global_batch_size", kAtLeastOne);
  counts.are_requests = facts.has_global_counts;
  if (!reader.IsNull("dp_size")) use->given_ranks = reader.Path("dp_size");
  for (const char* const key : {"global_batch_size", "batch_num_tokens"}) {
    if (!reader.IsNull(key)) use->given_count = reader.Path(key);
  }
  return counts;
}

// A given count covers all processes, and their gradients are averaged; without
// one the process divides by its own count, and the number of processes has no
// effect.
LossReduction Reduction(BatchCount own, RowCount row,
                        std::optional<double> given, const Counts& counts) {
  if (!given) return {own, row, counts.are_requests ? counts.processes : 1.0};
  return {BatchCount::kOne, row, counts.processes / *given};
}

LossReduction TokenReduction(const Counts& counts) {
  return Reduction(BatchCount::kTokens, RowCount::kOne, counts.tokens, counts);
}

LossReduction SampleReduction(const Counts& counts) {
  return Reduction(BatchCount::kNonemptyRows, RowCount::kTokens, counts.samples,
                   counts);
}

void ReadClips(const BlockReader& reader, LossSpec* loss) {
  constexpr std::string_view kPair = "eps_clip_low_high";
  constexpr NumberRange kAboveOne{.lowest = 1.0, .above = true};
  const double eps_clip = reader.ReadNumber("eps_clip", 0.2, kNonNegative);
  loss->clip_low = eps_clip;
  loss->clip_high = eps_clip;
  loss->dual_clip = reader.ReadOptionalNumber("dual_clip", kAboveOne)
                        .value_or(LossSpec::kNoBound);
  if (reader.IsNull(kPair)) return;
  const auto pair = ReadOpenrlhfPair(reader, kPair);
  if (!pair) return;
  if (!(pair->low >= 0.0) || !(pair->high >= 0.0)) {
    reader.Violate(kPair, Concat(kPair, " must hold two numbers >= 0."));
    return;
  }
  loss->clip_low = pair->low;
  loss->clip_high = pair->high;
}

// loss_agg_mode; its boolean form is PolicyLoss's token_level_loss.
bool ReadTokenLevel(const BlockReader& reader, const RequestFacts& facts) {
  constexpr std::string_view kKey = "loss_agg_mode";
  constexpr std::string_view kModes[] = {"token-mean", "seq-mean-token-mean"};
  constexpr std::string_view kFlag = "token_level_loss";
  const bool flag = reader.ReadBool(kFlag, true);
  if (!facts.IsSince(kOpenrlhfCorrectionByLevel) ||
      reader.Find(kKey) == nullptr) {
    return flag;
  }
  const auto mode = reader.ReadName(kKey, kModes[0], kModes);
  const bool by_token = mode.value_or(0) == 0;
  if (mode && !reader.IsNull(kFlag) && flag != by_token) {
    reader.Violate(kKey, Concat(kKey, " '", kModes[*mode],
                                "' and token_level_loss say two things."));
  }
  return by_token;
}

KlSpec ReadKl(const BlockReader& reader, const Counts& counts,
              const RequestFacts& facts, Violations* violations) {
  constexpr std::string_view kEstimators[] = {"k1", "k2", "k3"};
  constexpr double kClamp = 10.0;
  constexpr NumberRange kCoefficient{
      .lowest = 0.0, .highest = std::numeric_limits<double>::max()};
  KlSpec kl;
  if (!reader.ReadBool("use_kl_loss", false)) return kl;
  const auto name =
      reader.ReadName("kl_estimator", kEstimators[0], kEstimators);
  kl.coefficient = reader.ReadNumber("init_kl_coef", 0.01, kCoefficient);
  if (facts.wants_loss) {
    RequireTensor(facts.has_ref_log_probs, "ref_log_probs",
                  "use_kl_loss compares current_log_probs with it", violations);
  }
  const std::string_view estimator = kEstimators[name.value_or(0)];
  kl.estimator = estimator == "k1"   ? KlEstimator::kK1
                 : estimator == "k2" ? KlEstimator::kK2
                                     : KlEstimator::kK3;
  kl.value_clamp = kClamp;
  kl.straight_through = facts.IsSince(kOpenrlhfUnbiasedKl) &&
                        reader.ReadBool("unbiased_gradient", false);
  if (kl.straight_through) {
    constexpr double kRatioCap = 10.0;
    kl.gradient_ratio_cap = kRatioCap;
    if (facts.wants_loss) {
      RequireTensor(facts.has_old_log_probs, "old_log_probs",
                    "unbiased_gradient weighs by current - old", violations);
    }
  }
  kl.over = TokenSet::kOriginal;
  // The penalty averages over tokens, independent of the policy loss.
  kl.reduction = TokenReduction(counts);
  return kl;
}

void RequireTensors(const RequestFacts& facts, const OpenrlhfPolicy& policy,
                    RatioSource source, Violations* violations) {
  constexpr std::string_view kReason = "the policy loss is computed from it";
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                violations);
  RequireTensor(facts.has_advantages, "advantages", kReason, violations);
  RequireTensor(facts.has_old_log_probs, "old_log_probs", kReason, violations);
  if (source == RatioSource::kCurrentRollout) {
    RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs",
                  Concat("with ", policy.correction_field,
                         " the ratio of policy_loss_type 'gspo' is current - "
                         "rollout"),
                  violations);
  }
}

}  // namespace

std::optional<OpenrlhfInterval> ReadOpenrlhfPair(const BlockReader& reader,
                                                 std::string_view key) {
  const Value& value = *reader.Find(key);
  const auto& ends = value.list_value().values();
  const bool is_pair =
      ends.size() == 2 &&
      std::all_of(ends.begin(), ends.end(), [](const Value& end) {
        return end.has_number_value() && !std::isnan(end.number_value());
      });
  if (is_pair) {
    return OpenrlhfInterval{ends[0].number_value(), ends[1].number_value()};
  }
  reader.Violate(
      key, Concat(key, " must be a list of two numbers, [low, high], got ",
                  Describe(value), "."));
  return std::nullopt;
}

void ReadOpenrlhfLoss(const BlockReader& reader, const OpenrlhfPolicy& policy,
                      const RequestFacts& facts, Translation* translation) {
  LossSpec loss;
  loss.surrogate = Surrogate::kPpoClip;
  loss.over = TokenSet::kOriginal;
  loss.seed = facts.seed;
  loss.allow_double_correction = true;
  if (policy.is_gspo) {
    loss.level = LossLevel::kSequence;
    if (policy.corrects) loss.source = RatioSource::kCurrentRollout;
  } else {
    loss.log_ratio_lower = -kSafetyClamp;
    loss.log_ratio_upper = kSafetyClamp;
  }
  ReadClips(reader, &loss);
  const Counts counts = ReadCounts(reader, facts, &translation->counts_use);
  const bool by_token = ReadTokenLevel(reader, facts);
  loss.reduction = by_token && !policy.is_gspo ? TokenReduction(counts)
                                               : SampleReduction(counts);
  loss.kl = ReadKl(reader, counts, facts, &translation->violations);
  if (!facts.wants_loss) return;
  RequireTensors(facts, policy, loss.source, &translation->violations);
  translation->empty_loss_is_nan = true;
  translation->spec.loss = loss;
  translation->spec.loss.peer_sums = true;
}

}  // namespace counterweight::server
