// The running mean over a row that PREFIX statistics are made of.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PREFIX_H_
#define COUNTERWEIGHT_KERNELS_WALK_PREFIX_H_

#include "kernels/tile/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Calls f(step, group, means) with the means, a half group in each element, of
// addend(step, half group) over the row's tokens up to and with this one where
// `seen` is 1; 0 while there is none. `carry` holds the sums before the tile,
// and afterwards those before its end.
template <class Lanes, class Addend, class F>
COUNTERWEIGHT_HD void for_each_prefix_mean(int steps, PrefixBase& carry,
                                           Addend addend,
                                           const TileOf<Lanes>& seen, F f) {
  constexpr int kWidth = Lanes::kWidth;
  constexpr int kHalves = kVecLanes / kWideLanes;
  COUNTERWEIGHT_UNROLL
  for (int k = 0; k < steps; ++k) {
    LaneValues<kWidth, double> sum;
    LaneValues<kWidth, double> count;
    for (int h = 0; h < kWidth / kWideLanes; ++h) {
      const WideVec x = seen.wide(k, h) != 0.0 ? addend(k, h) : WideVec{};
      store(x, &sum.at[h * kWideLanes]);
    }
    Lanes::scan(sum);
    Lanes::scan_counts(seen, k, count);
    const PrefixBase before = carry;
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      WideVec means[kHalves];
      for (int h = 0; h < kHalves; ++h) {
        const int first = g * kVecLanes + h * kWideLanes;
        const WideVec n = before.count + load<WideVec>(&count.at[first]);
        const WideVec total = before.sum + load<WideVec>(&sum.at[first]);
        means[h] = n > 0.0 ? total / n : WideVec{};
      }
      f(k, g, means);
    }
    carry.sum += Lanes::last(sum);
    carry.count += Lanes::last(count);
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PREFIX_H_
