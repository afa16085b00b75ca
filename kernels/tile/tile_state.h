// State of one tile that the phases of a walk pass to each other.
#ifndef COUNTERWEIGHT_KERNELS_TILE_TILE_STATE_H_
#define COUNTERWEIGHT_KERNELS_TILE_TILE_STATE_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/math/bits.h"
#include "kernels/plan/needs.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/tile/phase_tiles.h"
#include "kernels/tile/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct TileState {
  static constexpr int kWidth = Lanes::kWidth;
  using Values = TileOf<Lanes>;

  // The block that the next tiles are taken from.
  typename Lanes::Ahead ahead;

  int part;          // which tile of its block
  int64_t position;  // of the tile's first token, in the batch
  int count;         // positions
  typename Lanes::Steps steps;
  // Inputs by role, 0 where mask is 0.
  Values input[kNumTensors];
  // Masks hold 0 or 1. mask: response_mask less dropped non-finite tokens;
  // kept: less what DROP rules dropped so far; zeroed: hit by a ZERO_WEIGHT
  // rule, written if the plan has one (Plan::zeroes).
  Values mask;
  Values kept;
  Values zeroed;
  // Tokens with an unknown rollout log-prob (CorrectionSpec::unknown_rollout),
  // if the tile has any. Their input is the drift's numerator.
  bool has_unknown;
  Values unknown;
  // By ratio source.
  Values log_ratio[kNumRatioSources];
  // No log ratio of a lane is larger, of any source; unless kReadsAhead.
  LaneValues<kWidth, float> largest;
  Values exp[kNumRatioSources];
  Values expm1[kNumRatioSources];
  Values k3[kNumRatioSources];
  // The bounded weight of kToken and kPrefix.
  Values weight;
  BitTileOf<Lanes> reasons;
  PhaseTiles<Lanes> tiles;
  // Written where masked positions are read, which few losses do.
  PaddingTiles<Lanes> padding;

  // Takes a non-finite token out.
  COUNTERWEIGHT_HD void drop(int k, int i) {
    mask.at[k][i] = 0.0f;
    reasons.at[k][i] |= kReasonNonFinite;
  }
};

// True if the plan needs one of `some`, which a walk that is compiled for plans
// of one kind may know beforehand.
template <class Lanes>
COUNTERWEIGHT_HD bool needs(const Plan& plan, Needs some) {
  return Lanes::must(some) || (Lanes::may(some) && (plan.needs & some) != 0);
}

// Sums that no output depends on are wanted.
template <class Lanes>
COUNTERWEIGHT_HD bool measures(const Plan& plan) {
  return needs<Lanes>(plan, kNeedMetrics);
}

template <class Lanes>
COUNTERWEIGHT_HD bool has_rules(const Plan& plan) {
  return needs<Lanes>(plan, kNeedRules);
}

// Weights of a level other than kNone.
template <class Lanes>
constexpr COUNTERWEIGHT_HD bool may_weigh() {
  return Lanes::may(kAnyWeight);
}

// Numerator and denominator of a ratio source.
constexpr COUNTERWEIGHT_HD bool is_of_means(RatioSource source) {
  return source == RatioSource::kMeans || source == RatioSource::kOtherMeans;
}
constexpr COUNTERWEIGHT_HD int numerator(RatioSource source) {
  if (is_of_means(source)) {
    return static_cast<int>(source == RatioSource::kMeans
                                ? InputRole::kMeans
                                : InputRole::kOtherMeans);
  }
  if (source == RatioSource::kRefCurrent) {
    return static_cast<int>(InputRole::kRef);
  }
  return static_cast<int>(source == RatioSource::kOldRollout
                              ? InputRole::kOld
                              : InputRole::kCurrent);
}
constexpr COUNTERWEIGHT_HD int denominator(RatioSource source) {
  if (is_of_means(source)) return static_cast<int>(InputRole::kZeros);
  if (source == RatioSource::kCurrentSelf ||
      source == RatioSource::kRefCurrent) {
    return static_cast<int>(InputRole::kCurrent);
  }
  return static_cast<int>(source == RatioSource::kCurrentOld
                              ? InputRole::kOld
                              : InputRole::kRollout);
}

// The drift phase adds up log ratios of `source` exactly.
template <class Lanes>
COUNTERWEIGHT_HD bool measures_drift_of(const Plan& plan, RatioSource source) {
  return measures<Lanes>(plan) &&
         source == Lanes::source(SourceUse::kDrift, plan.spec.drift_source);
}

// True if some log ratios of the tile are 0 whatever its inputs are.
template <class Lanes>
COUNTERWEIGHT_HD bool may_be_unknown(const TileState<Lanes>& s,
                                     RatioSource source) {
  return Lanes::may(kNeedUnknown) && s.has_unknown &&
         denominator(source) == static_cast<int>(InputRole::kRollout);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_TILE_TILE_STATE_H_
