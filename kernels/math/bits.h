// Bit casts and exact conversions.
#ifndef COUNTERWEIGHT_KERNELS_MATH_BITS_H_
#define COUNTERWEIGHT_KERNELS_MATH_BITS_H_

#include <cstdint>

#include "kernels/math/host_device.h"

#if defined(__AVX2__) && !defined(COUNTERWEIGHT_ONE_LANE)
#include <immintrin.h>
#endif

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

COUNTERWEIGHT_HD uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

COUNTERWEIGHT_HD float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

#ifndef COUNTERWEIGHT_ONE_LANE
// The same for vectors of floats or doubles, which the processor's registers
// hold.
template <class V, bool kIsWide = sizeof(V{}[0]) == sizeof(double)>
struct VectorBits {
  typedef uint32_t Type __attribute__((vector_size(sizeof(V))));
};
template <class V>
struct VectorBits<V, true> {
  typedef uint64_t Type __attribute__((vector_size(sizeof(V))));
};
template <class V>
COUNTERWEIGHT_HD typename VectorBits<V>::Type bits_of(V x) {
  return reinterpret_cast<typename VectorBits<V>::Type>(x);
}
template <class U>
struct VectorFloats {
  typedef float Type __attribute__((vector_size(sizeof(U))));
};
template <class U>
COUNTERWEIGHT_HD typename VectorFloats<U>::Type float_of(U bits) {
  return reinterpret_cast<typename VectorFloats<U>::Type>(bits);
}
template <class U>
struct VectorDoubles {
  typedef double Type __attribute__((vector_size(sizeof(U))));
};
template <class U>
COUNTERWEIGHT_HD typename VectorDoubles<U>::Type double_of(U bits) {
  return reinterpret_cast<typename VectorDoubles<U>::Type>(bits);
}
#endif

// x in every lane of V. x - 0 is x whatever its sign, so that nothing is left
// to compute.
template <class V>
COUNTERWEIGHT_HD V spread(float x) {
  return x - V{};
}

// The same of float64, for V of double or of vectors of them.
template <class V>
COUNTERWEIGHT_HD V spread_wide(double x) {
  return x - V{};
}

// a b + c, rounded once.
COUNTERWEIGHT_HD float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
COUNTERWEIGHT_HD double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
#ifndef COUNTERWEIGHT_ONE_LANE
template <class V>
COUNTERWEIGHT_HD V fused(V a, V b, V c) {
  [[maybe_unused]] constexpr bool kIsWide = sizeof(a[0]) == sizeof(double);
#ifdef __AVX512F__
  if constexpr (sizeof(V) == 64 && kIsWide) return _mm512_fmadd_pd(a, b, c);
  if constexpr (sizeof(V) == 64 && !kIsWide) return _mm512_fmadd_ps(a, b, c);
#endif
#ifdef __FMA__
  if constexpr (sizeof(V) == 32 && kIsWide) return _mm256_fmadd_pd(a, b, c);
  if constexpr (sizeof(V) == 32 && !kIsWide) return _mm256_fmadd_ps(a, b, c);
#endif
  V sum;
  for (unsigned i = 0; i < sizeof(V) / sizeof(a[0]); ++i) {
    sum[i] = fused(a[i], b[i], c[i]);
  }
  return sum;
}
#endif

COUNTERWEIGHT_HD uint64_t bits_of(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

COUNTERWEIGHT_HD double double_of(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// c ? a : b without a branch. Where several conditions hang on one value g++ 12
// threads jumps between ternaries and the loop around them stays scalar; bit
// masks cannot be threaded.
COUNTERWEIGHT_HD float select(bool c, float a, float b) {
#ifdef COUNTERWEIGHT_ONE_LANE
  return c ? a : b;
#else
  const uint32_t mask = 0u - static_cast<uint32_t>(c);
  return float_of((bits_of(a) & mask) | (bits_of(b) & ~mask));
#endif
}

// bfloat16 is the upper half of binary32: exact.
COUNTERWEIGHT_HD float from_bf16(uint16_t h) {
  return float_of(static_cast<uint32_t>(h) << 16);
}

// binary16: exponent and mantissa moved into place are the number times 2^-112;
// the multiplication is exact, denormals included. Infinities and NaN keep
// their mantissa under the full exponent.
COUNTERWEIGHT_HD float from_f16(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fffu) << 13;
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u;
  return float_of(sign | (magnitude >= 0x0f800000u ? special : finite));
}

// True for neither NaN nor infinity.
COUNTERWEIGHT_HD bool is_finite(float x) {
  return (bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_MATH_BITS_H_
