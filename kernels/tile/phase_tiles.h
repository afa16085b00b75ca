// Scratch tiles of one phase of a tile's walk. They hold nothing when the phase
// begins, and nothing reads them after it: later phases read TileState or
// arguments.
#ifndef COUNTERWEIGHT_KERNELS_TILE_PHASE_TILES_H_
#define COUNTERWEIGHT_KERNELS_TILE_PHASE_TILES_H_

#include <cstdint>

#include "kernels/tile/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

enum class TilePhase : uint8_t { kNone, kRule, kWeight, kLoss };

// One rejection rule.
template <class Lanes>
struct RuleTiles {
  static constexpr TilePhase kPhase = TilePhase::kRule;
  TileOf<Lanes> estimate;   // of a token, before a running mean
  TileOf<Lanes> statistic;  // what the rule compares
  // 1 where the statistic is above or below the interval; running means only.
  TileOf<Lanes> high;
  TileOf<Lanes> low;
  TileOf<Lanes> fired;  // 1 where the rule hits the token
};

// Weights that are made of running means.
template <class Lanes>
struct WeightTiles {
  static constexpr TilePhase kPhase = TilePhase::kWeight;
  // exp and expm1 of the mean.
  TileOf<Lanes> exp;
  TileOf<Lanes> expm1;
};

template <class Lanes>
struct LossTiles {
  static constexpr TilePhase kPhase = TilePhase::kLoss;
  // r, r - 1 and dr / dl (LossLevel::kSequence: dr / dS).
  TileOf<Lanes> ratio;
  TileOf<Lanes> excess;
  TileOf<Lanes> ratio_slope;
  // r and its slope are e^l itself, and their tiles hold nothing, see
  // LossRatios.
  bool ratio_is_exp;
  // Result of the surrogate's prepare() or of the selection of tokens.
  TileOf<Lanes> prepared;
  // w V, its slopes by the token's log-prob and by the row's log ratio, and the
  // magnitude of the whole slope without clipping.
  TileOf<Lanes> value;
  TileOf<Lanes> slope;
  TileOf<Lanes> sequence_slope;
  TileOf<Lanes> full_slope;
  // The KL penalty's k and its slopes.
  TileOf<Lanes> kl_value;
  TileOf<Lanes> kl_slope;
  TileOf<Lanes> kl_sequence_slope;
  // Flags of SurrogateVec, 0 or 1.
  TileOf<Lanes> clipped;
  TileOf<Lanes> high;
  TileOf<Lanes> low;
  TileOf<Lanes> capped;
  TileOf<Lanes> beyond_zero;
};

// Masked positions, inside the loss phase.
template <class Lanes>
struct PaddingTiles {
  TileOf<Lanes> is_padding;  // 0 or 1
  TileOf<Lanes> current;     // log-probs
  TileOf<Lanes> denominator;
  TileOf<Lanes> advantages;
  TileOf<Lanes> ratio;
  TileOf<Lanes> value;  // weighted
  TileOf<Lanes> sequence_slope;
  TileOf<Lanes> high;
  TileOf<Lanes> low;
  TileOf<Lanes> kl;
};

// The phases' tiles in one place, as one phase runs at a time. Where
// COUNTERWEIGHT_CHECK_WALK is defined, reading another phase's tiles ends the
// process.
template <class Lanes>
class PhaseTiles {
 public:
  // Begins the phase of `Tiles`.
  template <class Tiles>
  COUNTERWEIGHT_HD Tiles& begin() {
#ifdef COUNTERWEIGHT_CHECK_WALK
    phase_ = Tiles::kPhase;
#endif
    return get<Tiles>();
  }

  // REQUIRES: the phase of `Tiles` began last.
  template <class Tiles>
  COUNTERWEIGHT_HD Tiles& get() {
    check<Tiles>();
    if constexpr (Tiles::kPhase == TilePhase::kRule) {
      return rule_;
    } else if constexpr (Tiles::kPhase == TilePhase::kWeight) {
      return weight_;
    } else {
      return loss_;
    }
  }
  template <class Tiles>
  COUNTERWEIGHT_HD const Tiles& get() const {
    return const_cast<PhaseTiles*>(this)->template get<Tiles>();
  }

 private:
  template <class Tiles>
  COUNTERWEIGHT_HD void check() const {
#ifdef COUNTERWEIGHT_CHECK_WALK
    if (phase_ != Tiles::kPhase) __builtin_trap();
#endif
  }

#ifdef COUNTERWEIGHT_CHECK_WALK
  TilePhase phase_ = TilePhase::kNone;
#endif
  union {
    RuleTiles<Lanes> rule_;
    WeightTiles<Lanes> weight_;
    LossTiles<Lanes> loss_;
  };
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_TILE_PHASE_TILES_H_
