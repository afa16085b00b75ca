// Bounds of numbers that callers give as double and kernels read as float32.
#ifndef COUNTERWEIGHT_KERNELS_FLOAT_BOUNDS_H_
#define COUNTERWEIGHT_KERNELS_FLOAT_BOUNDS_H_

#include <limits>

namespace counterweight::kernels {

// Whether `x` is still above 0 as a float32.
inline bool IsAboveZero(double x) {
  return x >= std::numeric_limits<float>::denorm_min();
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_FLOAT_BOUNDS_H_
