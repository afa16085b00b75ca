// Sums over the lanes of many columns at once, by halving.
#ifndef COUNTERWEIGHT_KERNELS_TILE_FOLD_REGISTERS_H_
#define COUNTERWEIGHT_KERNELS_TILE_FOLD_REGISTERS_H_

#include <utility>

#include "kernels/math/host_device.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Registers a and b hold kLeft lanes each of neighbouring columns; the result
// holds half the lanes of all their columns.
template <int kLeft, class V, int... lane>
COUNTERWEIGHT_HD V fold_two(V a, V b, std::integer_sequence<int, lane...>) {
  constexpr int kHalf = kLeft / 2;
  return __builtin_shufflevector(a, b,
                                 (lane / kHalf * kLeft + lane % kHalf)...) +
         __builtin_shufflevector(
             a, b, (lane / kHalf * kLeft + lane % kHalf + kHalf)...);
}

// Lane i of the result is the sum of column i's lanes. `registers` holds kLeft
// of V, which hold kLeft lanes each of their columns: at first, a register is a
// column, and there are as many as it has lanes.
template <int kLeft, class V>
COUNTERWEIGHT_HD V fold_registers(const V* registers) {
  if constexpr (kLeft == 1) {
    return registers[0];
  } else {
    constexpr int kLanesOfOne = sizeof(V) / sizeof(registers[0][0]);
    V halves[kLeft / 2];
    for (int i = 0; i < kLeft / 2; ++i) {
      halves[i] =
          fold_two<kLeft>(registers[2 * i], registers[2 * i + 1],
                          std::make_integer_sequence<int, kLanesOfOne>());
    }
    return fold_registers<kLeft / 2>(halves);
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_TILE_FOLD_REGISTERS_H_
