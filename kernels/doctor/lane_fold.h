// Sums over the lanes of a pass, many columns at once.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_LANE_FOLD_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_LANE_FOLD_H_

#include <utility>

#include "kernels/doctor/passes.h"
#include "kernels/tile/tile.h"

namespace counterweight::kernels::doctor {
inline namespace COUNTERWEIGHT_ISA {

inline constexpr int kLaneParts = static_cast<int>(kPassLanes) / kVecLanes;

// The lanes of one column. V: Vec or BitsVec.
template <class V>
struct LanesOf {
  V parts[kLaneParts];
};

// A fold takes so many columns for `columns`.
constexpr int FoldedCount(int columns) {
  return (columns + kVecLanes - 1) / kVecLanes * kVecLanes;
}

// Lane `lane` of the halves of a's, and then of b's, columns of kSpan lanes.
template <int kSpan>
constexpr int PlaceInHalves(int lane, bool upper) {
  constexpr int kHalf = kSpan / 2;
  const int from_b = lane < kVecLanes / 2 ? 0 : 1;
  const int in_one = lane - from_b * (kVecLanes / 2);
  return from_b * kVecLanes + in_one / kHalf * kSpan + in_one % kHalf +
         (upper ? kHalf : 0);
}

template <int kSpan, class V, int... kLane>
COUNTERWEIGHT_HD V add_halves(V a, V b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, PlaceInHalves<kSpan>(kLane, false)...) +
         __builtin_shufflevector(a, b, PlaceInHalves<kSpan>(kLane, true)...);
}

// kSpan registers, in which each column has kSpan lanes, become one.
template <int kSpan, class V>
COUNTERWEIGHT_HD V fold_registers(const V* registers) {
  if constexpr (kSpan == 1) {
    return registers[0];
  } else {
    V halved[kSpan / 2];
    unrolled<kSpan / 2>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
      halved[i] =
          add_halves<kSpan>(registers[2 * i], registers[2 * i + 1],
                            std::make_integer_sequence<int, kVecLanes>());
    });
    return fold_registers<kSpan / 2>(halved);
  }
}

// out[c] = the sum over column c's lanes by halving: to lane i is added first
// lane i + 8, then i + 4 and so on. kCount: a FoldedCount().
template <int kCount, class V, class T>
COUNTERWEIGHT_HD void fold_lanes(const LanesOf<V>* columns, T* out) {
  for (int c = 0; c < kCount; c += kVecLanes) {
    V registers[kVecLanes];
    for (int i = 0; i < kVecLanes; ++i) {
      V parts[kLaneParts];
      for (int p = 0; p < kLaneParts; ++p) parts[p] = columns[c + i].parts[p];
      for (int half = kLaneParts / 2; half > 0; half /= 2) {
        for (int p = 0; p < half; ++p) parts[p] += parts[p + half];
      }
      registers[i] = parts[0];
    }
    store(fold_registers<kVecLanes>(registers), out + c);
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_LANE_FOLD_H_
