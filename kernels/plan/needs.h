// The needs of a plan, one set of bits. They alone decide which columns there
// are, which walk on a device fits, and what each phase does; the plan's other
// members are values.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_NEEDS_H_
#define COUNTERWEIGHT_KERNELS_PLAN_NEEDS_H_

#include <cstdint>

#include "kernels/math/host_device.h"

namespace counterweight::kernels {

using Needs = uint64_t;

enum Need : Needs {
  kNeedTokens = Needs{1} << 0,   // of every plan
  kNeedMetrics = Needs{1} << 1,  // sums that no output depends on
  kNeedReasons = Needs{1} << 2,  // outputs, not the plan, request reasons
  // CorrectionSpec::unknown_rollout, and more than the drift reads the rollout
  // log-probs.
  kNeedUnknown = Needs{1} << 3,
  kNeedMixedSources = Needs{1} << 4,  // weight and rules of several ratios
  kNeedPeerSums = Needs{1} << 5,      // CorrectionSpec::peer_sums, with metrics

  // Weights.
  kNeedTokenWeights = Needs{1} << 6,
  kNeedPrefixWeights = Needs{1} << 7,
  kNeedRowWeights = Needs{1} << 8,
  kNeedVanishing = Needs{1} << 9,  // not by row, and can be 0
  // By token, of another ratio than the drift's.
  kNeedOwnRatio = Needs{1} << 10,
  kNeedLateWeights = Needs{1} << 11,  // that wait for rules

  // Rules.
  kNeedRules = Needs{1} << 12,
  kNeedPrefixes = Needs{1} << 13,     // running means, of a weight too
  kNeedZeroing = Needs{1} << 14,      // some rule zeroes weights
  kNeedSequential = Needs{1} << 15,   // they see what others left
  kNeedConditions = Needs{1} << 16,   // some rule is for some advantages
  kNeedDivergences = Needs{1} << 17,  // some rule is of two probabilities
  // Some rule may hit a part of a row's tokens.
  kNeedTokenHits = Needs{1} << 18,

  // Losses.
  kNeedLoss = Needs{1} << 19,
  kNeedSurrogates = Needs{1} << 20,   // with a ratio, without kTraitCommon
  kNeedReinforce = Needs{1} << 21,    // without a ratio
  kNeedRowLoss = Needs{1} << 22,      // sums of the row before its tokens' loss
  kNeedRowRatio = Needs{1} << 23,     // LossLevel::kSequence
  kNeedRowGradient = Needs{1} << 24,  // tokens get a share of their row's slope
  kNeedKl = Needs{1} << 25,           // the penalty
  kNeedKlRatio = Needs{1} << 26,      // LossPlan::has_kl_ratio, has_kl_source
  kNeedPadding = Needs{1} << 27,      // masked positions are read
  kNeedSelection = Needs{1} << 28,    // KL_COV, CLIP_COV
  kNeedRowAdvantages = Needs{1} << 29,   // prescales_advantages
  kNeedPeerLoss = Needs{1} << 30,        // LossSpec::peer_sums, with metrics
  kNeedDroppedLoss = Needs{1} << 31,     // LossPlan::counts_dropped
  kNeedMeanAdvantages = Needs{1} << 32,  // averages_advantages
};

// Sets with a name of their own.
inline constexpr Needs kAnyTokenWeights =
    kNeedTokenWeights | kNeedPrefixWeights;
inline constexpr Needs kAggregates = kNeedRowWeights | kNeedPrefixWeights;
inline constexpr Needs kAnyWeight = kAnyTokenWeights | kNeedRowWeights;
inline constexpr Needs kLossStatistics = kNeedRowLoss | kNeedSelection;
inline constexpr Needs kAnyRowLoss =
    kNeedRowLoss | kNeedRowRatio | kNeedRowGradient;

// All needs of plans with RowRatioLoss.
inline constexpr Needs kRowRatioNeeds =
    kNeedTokens | kNeedMetrics | kNeedLoss | kAnyRowLoss;

// The needs of sums over rows: a row's weight counts once for each of its
// tokens, with metrics or without, and what rules leave of weights is known of
// rows that they drop whole.
constexpr COUNTERWEIGHT_HD Needs NeedsOfRows(Needs needs) {
  const Needs of_weight = (needs & kNeedRowWeights) != 0
                              ? kNeedTokenWeights | kNeedMetrics
                              : Needs{0};
  const Needs of_rules = (needs & kNeedRules) != 0 ? kNeedTokenHits : Needs{0};
  return needs | of_weight | of_rules;
}

// The readers of a ratio.
enum class SourceUse : uint8_t {
  kDrift,
  kCorrection,  // the weight and all rules
  kLoss,
  kLossMetrics,
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_NEEDS_H_
