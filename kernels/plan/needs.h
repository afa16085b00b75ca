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
  kNeedTokens = 1u << 0,   // of every plan
  kNeedMetrics = 1u << 1,  // sums that no output depends on
  kNeedReasons = 1u << 2,  // outputs, not the plan, request reasons
  // CorrectionSpec::unknown_rollout, and more than the drift reads the rollout
  // log-probs.
  kNeedUnknown = 1u << 3,
  kNeedMixedSources = 1u << 4,  // weight and rules of several ratios
  kNeedPeerSums = 1u << 5,      // CorrectionSpec::peer_sums, with metrics

  // Weights.
  kNeedTokenWeights = 1u << 6,
  kNeedPrefixWeights = 1u << 7,
  kNeedRowWeights = 1u << 8,
  kNeedVanishing = 1u << 9,     // not by row, and can be 0
  kNeedOwnRatio = 1u << 10,     // by token, of another ratio than the drift's
  kNeedLateWeights = 1u << 11,  // that wait for rules

  // Rules.
  kNeedRules = 1u << 12,
  kNeedPrefixes = 1u << 13,     // running means, of a weight too
  kNeedZeroing = 1u << 14,      // some rule zeroes weights
  kNeedSequential = 1u << 15,   // they see what others left
  kNeedConditions = 1u << 16,   // some rule is for some advantages
  kNeedDivergences = 1u << 17,  // some rule is of two probabilities
  kNeedTokenHits = 1u << 30,    // some rule may hit a part of a row's tokens

  // Losses.
  kNeedLoss = 1u << 18,
  kNeedSurrogates = 1u << 19,     // with a ratio, without kTraitCommon
  kNeedReinforce = 1u << 20,      // without a ratio
  kNeedRowLoss = 1u << 21,        // sums of the row before its tokens' loss
  kNeedRowRatio = 1u << 22,       // LossLevel::kSequence
  kNeedRowGradient = 1u << 23,    // tokens get a share of their row's slope
  kNeedKl = 1u << 24,             // the penalty
  kNeedKlRatio = 1u << 25,        // KlSpec::gradient_ratio_cap
  kNeedPadding = 1u << 26,        // masked positions are read
  kNeedSelection = 1u << 27,      // KL_COV, CLIP_COV
  kNeedRowAdvantages = 1u << 28,  // prescales_advantages
  kNeedPeerLoss = 1u << 29,       // LossSpec::peer_sums, with metrics
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
