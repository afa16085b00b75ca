// The running mean over a row that PREFIX statistics are made of.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PREFIX_H_
#define COUNTERWEIGHT_KERNELS_WALK_PREFIX_H_

#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Calls f(step, lane, mean) with the mean of addend(step, half group) over the
// row's tokens up to and with this one where `seen` is 1; 0 while there is
// none. `carry` holds what came before the tile, and afterwards what came
// before its end.
template <class Lanes, class Addend, class F>
COUNTERWEIGHT_HD void for_each_prefix_mean(int steps, PrefixBase& carry,
                                           Addend addend,
                                           const Tile<Lanes::kWidth>& seen,
                                           F f) {
  constexpr int kWidth = Lanes::kWidth;
  COUNTERWEIGHT_UNROLL
  for (int k = 0; k < steps; ++k) {
    LaneValues<kWidth, double> sum;
    LaneValues<kWidth, double> count;
    for (int h = 0; h < kWidth / kWideLanes; ++h) {
      const WideVec s = seen.wide(k, h);
      const WideVec x = s != 0.0 ? addend(k, h) : WideVec{};
      store(x, &sum.at[h * kWideLanes]);
      store(s, &count.at[h * kWideLanes]);
    }
    Lanes::scan(sum);
    Lanes::scan(count);
    const PrefixBase before = carry;
    for_each_lane<kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
      const double n = before.count + count.at[i];
      const double total = before.sum + sum.at[i];
      f(k, i, n > 0.0 ? total / n : 0.0);
    });
    carry.sum += Lanes::last(sum);
    carry.count += Lanes::last(count);
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PREFIX_H_
