// Sums over the lanes of a pass, many columns at once.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_LANE_FOLD_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_LANE_FOLD_H_

#include "kernels/doctor/passes.h"
#include "kernels/tile/fold_registers.h"
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
    store(fold_registers<kVecLanes>(&registers[0]), out + c);
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_LANE_FOLD_H_
