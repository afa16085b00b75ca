// exp, expm1, k3 and log, the same bits everywhere: IEEE operations and
// explicit fma only, no library function. Each is total: every bit pattern has
// an answer.
#ifndef COUNTERWEIGHT_KERNELS_MATH_EXP_H_
#define COUNTERWEIGHT_KERNELS_MATH_EXP_H_

#include <cstdint>

#include "kernels/math/bits.h"
#include "kernels/math/host_device.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The results of one polynomial for a token's log ratio l; V is float, or a
// vector of them.
template <class V>
struct ExpTermsOf {
  V exp;    // e^l
  V expm1;  // e^l - 1, relative error below 2^-23 for small l
  V k3;     // e^l - 1 - l >= 0 (Schulman 2020, "Approximating KL Divergence")
};
using ExpTerms = ExpTermsOf<float>;

// Range reduction l = n ln 2 + r, |r| <= ln(2) / 2 (Cody and Waite 1980), then
// e^r - 1 - r = r^2 q(r). q is a degree 5 minimax polynomial with q(0) = 1/2;
// for n = 0 it is k3 itself, so that k3 of a tiny l has full relative accuracy.
template <class V>
COUNTERWEIGHT_HD ExpTermsOf<V> exp_terms(V l) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: n * kLn2High is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  // Adding it rounds to an integer n. The bits of the sum end in those of
  // n + 254, twice the exponent's bias.
  constexpr float kShift = 0x1.8p23f + 254.0f;
  // Below exp is 0 and above it is infinite.
  constexpr float kLowest = -104.0f;
  constexpr float kHighest = 89.0f;
  const auto all = [](float x)
                       COUNTERWEIGHT_INLINE_LAMBDA { return spread<V>(x); };
#ifdef COUNTERWEIGHT_ONE_LANE
  // One instruction each, and the same results.
  const float c = __builtin_fminf(__builtin_fmaxf(l, kLowest), kHighest);
#else
  const V raised = l > kLowest ? l : all(kLowest);  // maps NaN too
  const V c = raised < kHighest ? raised : all(kHighest);
#endif
  const V shifted = fused(c, all(kLog2E), all(kShift));
  const V n = shifted - kShift;
  const V r = fused(n, all(-kLn2Low), fused(n, all(-kLn2High), c));
  V q = all(0x1.a05312p-13f);
  q = fused(q, r, all(0x1.6d2dcep-10f));
  q = fused(q, r, all(0x1.11115ap-7f));
  q = fused(q, r, all(0x1.555502p-5f));
  q = fused(q, r, all(0x1.555556p-3f));
  q = fused(q, r, all(0.5f));
  const V r2 = r * r;
  const V p = fused(r2, q, r);
  // 2^n in two factors: n reaches 128 and -150, which no single float holds.
  // The bits above n + 254 are shifted out at the top.
  const auto bits = bits_of(shifted);
  const auto half = bits >> 1;
  const V scale1 = float_of(half << 23);
  const V scale2 = float_of((bits - half) << 23);
  const V exp = fused(p, scale1, scale1) * scale2;
  const auto near = n == 0.0f;
  const V expm1 = near ? p : exp - 1.0f;
  const V k3 = near ? r2 * q : expm1 - l;
  return {exp, expm1, k3};
}

// e^x and e^x - 1 in float64; Taylor coefficients suffice for |r| <= ln(2) / 2:
// the first omitted term is 4e-17 of the result. V is double, or a vector of
// them.
template <class V>
struct ExpTerms64Of {
  V exp;
  V expm1;
};

using ExpTerms64 = ExpTerms64Of<double>;

template <class V>
COUNTERWEIGHT_HD ExpTerms64Of<V> exp_terms64(V x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa0000p-1;  // 33 bits
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  // As in exp_terms().
  constexpr double kShift = 0x1.8p52 + 2046.0;
  constexpr double kLowest = -746.0;
  constexpr double kHighest = 710.0;
  const auto all = [](double c) COUNTERWEIGHT_INLINE_LAMBDA {
    return spread_wide<V>(c);
  };
  const V raised = x > kLowest ? x : all(kLowest);
  const V c = raised < kHighest ? raised : all(kHighest);
  const V shifted = fused(c, all(kLog2E), all(kShift));
  const V n = shifted - kShift;
  const V r = fused(n, all(-kLn2Low), fused(n, all(-kLn2High), c));
  V q = all(1.0 / 87178291200.0);  // 1/14!
  q = fused(q, r, all(1.0 / 6227020800.0));
  q = fused(q, r, all(1.0 / 479001600.0));
  q = fused(q, r, all(1.0 / 39916800.0));
  q = fused(q, r, all(1.0 / 3628800.0));
  q = fused(q, r, all(1.0 / 362880.0));
  q = fused(q, r, all(1.0 / 40320.0));
  q = fused(q, r, all(1.0 / 5040.0));
  q = fused(q, r, all(1.0 / 720.0));
  q = fused(q, r, all(1.0 / 120.0));
  q = fused(q, r, all(1.0 / 24.0));
  q = fused(q, r, all(1.0 / 6.0));
  q = fused(q, r, all(0.5));
  const V p = fused(r * r, q, r);
  const auto bits = bits_of(shifted);
  const auto half = bits >> 1;
  const V scale1 = double_of(half << 52);
  const V scale2 = double_of((bits - half) << 52);
  const V exp = fused(p, scale1, scale1) * scale2;
  const V value = x == x ? exp : x;
  return {value, n == 0.0 ? p : value - 1.0};
}

template <class V>
COUNTERWEIGHT_HD V exp64(V x) {
  return exp_terms64(x).exp;
}
template <class V>
COUNTERWEIGHT_HD V expm1_64(V x) {
  return exp_terms64(x).expm1;
}

// Natural logarithm of x >= 0: x = 2^n m, m in [sqrt(1/2), sqrt(2)), log m =
// 2 atanh(f / (2 + f)), f = m - 1. 0 gives -infinity, infinity itself; negative
// numbers and NaN give NaN.
COUNTERWEIGHT_HD double log64(double x) {
  constexpr double kInfinity = __builtin_inf();
  if (!(x >= 0.0)) return __builtin_nan("");
  if (x == 0.0) return -kInfinity;
  if (x == kInfinity) return kInfinity;
  const bool denormal = x < 0x1p-1022;
  const uint64_t bits = bits_of(denormal ? x * 0x1p54 : x);
  int64_t exponent =
      static_cast<int64_t>(bits >> 52) - (denormal ? 1023 + 54 : 1023);
  double m = double_of((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    exponent += 1;
  }
  const double f = m - 1.0;
  const double d = 2.0 + f;
  const double s = f / d;
  // The rounding errors of d and s, so that 2 s + tail is accurate to far below
  // one unit in the last place: bounds should be the nearest double.
  const double d_tail = f - (d - 2.0);
  const double s_tail = (__builtin_fma(-s, d, f) - s * d_tail) / d;
  const double z = s * s;
  double t = 1.0 / 23.0;
  t = __builtin_fma(t, z, 1.0 / 21.0);
  t = __builtin_fma(t, z, 1.0 / 19.0);
  t = __builtin_fma(t, z, 1.0 / 17.0);
  t = __builtin_fma(t, z, 1.0 / 15.0);
  t = __builtin_fma(t, z, 1.0 / 13.0);
  t = __builtin_fma(t, z, 1.0 / 11.0);
  t = __builtin_fma(t, z, 1.0 / 9.0);
  t = __builtin_fma(t, z, 1.0 / 7.0);
  t = __builtin_fma(t, z, 1.0 / 5.0);
  t = __builtin_fma(t, z, 1.0 / 3.0);
  const double tail = 2.0 * (s_tail + s * (z * t));
  constexpr double kLn2High = 0x1.62e42fefa0000p-1;
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  const double n = static_cast<double>(exponent);
  // n kLn2High is exact, and its sum with 2 s loses `lost`.
  const double high = n * kLn2High;
  const double sum = high + 2.0 * s;
  const double lost = n == 0.0 ? 0.0 : (high - sum) + 2.0 * s;
  return sum + (lost + (n * kLn2Low + tail));
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_MATH_EXP_H_
