// log in float32, the same bits everywhere, as in exp.h.
#ifndef COUNTERWEIGHT_KERNELS_MATH_LOG_H_
#define COUNTERWEIGHT_KERNELS_MATH_LOG_H_

#include <cstdint>

#include "kernels/math/bits.h"
#include "kernels/math/host_device.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Natural logarithm of a normal x > 0, relative error below 2^-22; other
// patterns have a value without a meaning. V is a vector of floats. x = 2^n m,
// m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s), s = (m - 1) / (m + 1) (the
// series to s^9; |s| < 0.172).
template <class V>
COUNTERWEIGHT_HD V log_terms(V x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3u;
  constexpr uint32_t kOne = 0x3f800000u;
  constexpr float kLn2High = 0x1.62e4p-1f;
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  // n + 127.
  const auto exponent = (bits_of(x) - kSqrtHalf + kOne) >> 23;
  const V m = float_of(bits_of(x) - (exponent << 23) + kOne);
  // 2^23 ends in the bits of the integer that is added to it.
  const V n = float_of(exponent + 0x4b000000u) - (0x1p23f + 127.0f);
  const V f = m - 1.0f;
  const V s = f / (m + 1.0f);
  const V z = s * s;
  V t = spread<V>(1.0f / 9.0f);
  t = fused(t, z, spread<V>(1.0f / 7.0f));
  t = fused(t, z, spread<V>(1.0f / 5.0f));
  t = fused(t, z, spread<V>(1.0f / 3.0f));
  const V tail = (s + s) * (z * t);
  return fused(n, spread<V>(kLn2High),
               (s + s) + fused(n, spread<V>(kLn2Low), tail));
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_MATH_LOG_H_
