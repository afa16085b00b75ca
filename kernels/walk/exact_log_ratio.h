// Sums of log ratios on which decisions about whole rows hang.
#ifndef COUNTERWEIGHT_KERNELS_WALK_EXACT_LOG_RATIO_H_
#define COUNTERWEIGHT_KERNELS_WALK_EXACT_LOG_RATIO_H_

#include "kernels/walk/accumulators.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Log ratios in float64, clamped: the exact differences, on which sums over
// rows hang. Looks its tiles up once, not for each number.
template <class Lanes>
class ExactLogRatio {
 public:
  COUNTERWEIGHT_HD ExactLogRatio(const TileState<Lanes>& s, RatioSource source,
                                 double clamp)
      : num_(s.input[numerator(source)]),
        den_(s.input[denominator(source)]),
        unknown_(s.unknown),
        has_unknown_(may_be_unknown(s, source)),
        clamp_(clamp) {}

  // A half group of a step.
  COUNTERWEIGHT_HD WideVec operator()(int k, int h) const {
    WideVec l = num_.wide(k, h) - den_.wide(k, h);
    if (has_unknown_) l = unknown_.wide(k, h) != 0.0 ? WideVec{} : l;
    const WideVec c = splat_wide(clamp_);
    const WideVec capped = l > c ? c : l;
    return capped < -c ? -c : capped;
  }

 private:
  const TileOf<Lanes>& num_;
  const TileOf<Lanes>& den_;
  const TileOf<Lanes>& unknown_;
  const bool has_unknown_;
  const double clamp_;
};

// True if a flag is not 0.
template <class Lanes>
COUNTERWEIGHT_HD bool any_of(const Vec (&flags)[Lanes::kWidth / kVecLanes]) {
  LaneValues<Lanes::kWidth, float> lanes;
  for (int g = 0; g < Lanes::kWidth / kVecLanes; ++g) {
    store(flags[g], &lanes.at[g * kVecLanes]);
  }
  return Lanes::any(lanes);
}

// True if a log ratio of the tile may lie beyond the clamp. Rounding keeps
// order: where float32 differences do not reach it, exact ones do not either.
template <class Lanes>
COUNTERWEIGHT_HD bool reaches(const TileState<Lanes>& s, RatioSource source,
                              double clamp) {
  constexpr int kWidth = Lanes::kWidth;
  if (clamp == kUnbounded) return false;
  const float edge = static_cast<float>(clamp);
  const Vec one = splat(1.0f);
  Vec beyond[kWidth / kVecLanes] = {};
  if constexpr (Lanes::kReadsAhead) {
    const TileOf<Lanes>& l = s.log_ratio[static_cast<int>(source)];
    for_each_group<kWidth>(s.steps,
                           [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                             const Vec x = absolute(l.vec(k, g));
                             beyond[g] = x < edge ? beyond[g] : one;
                           });
  } else {
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      const Vec x = load<Vec>(&s.largest.at[g * kVecLanes]);
      beyond[g] = x < edge ? Vec{} : one;
    }
  }
  return any_of<Lanes>(beyond);
}

// Adds log ratios, exact and clamped, to a column, of tokens that `seen` has;
// of all if it is the mask, as masked log ratios are 0. is_drift: the drift
// phase has added the tile's log ratios of this source.
template <class Lanes>
COUNTERWEIGHT_HD void add_exact_log_ratios(const TileState<Lanes>& s,
                                           RatioSource source, double clamp,
                                           const TileOf<Lanes>& seen,
                                           bool is_mask, bool is_drift,
                                           int column,
                                           Accumulators<Lanes>& acc) {
  const TileOf<Lanes>& num = s.input[numerator(source)];
  const TileOf<Lanes>& den = s.input[denominator(source)];
  const auto difference = [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
    return num.wide(k, h) - den.wide(k, h);
  };
  if (!may_be_unknown(s, source) && !reaches(s, source, clamp)) {
    if (is_mask && is_drift && acc.columns.copy_sum(kColumnLogRatio, column)) {
      return;
    }
    if (is_mask) {
      acc.add_exact(column, s.steps, difference);
    } else {
      acc.add_exact(
          column, s.steps, [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
            return seen.wide(k, h) != 0.0 ? difference(k, h) : WideVec{};
          });
    }
    return;
  }
  const ExactLogRatio<Lanes> exact(s, source, clamp);
  acc.add_exact(column, s.steps, [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
    return seen.wide(k, h) != 0.0 ? exact(k, h) : WideVec{};
  });
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_EXACT_LOG_RATIO_H_
