// A block of 256 positions as 8 steps of 32 lanes: position t of the block is
// step t / 32, lane t mod 32. On the CPU one thread holds all 32 lanes and a
// loop over them is vector code; on the GPU each thread of a warp is one lane.
#ifndef COUNTERWEIGHT_KERNELS_TILE_TILE_H_
#define COUNTERWEIGHT_KERNELS_TILE_TILE_H_

#include <cstdint>

#include "kernels/math/bits.h"
#include "kernels/math/host_device.h"

#if defined(__AVX2__) && !defined(COUNTERWEIGHT_ONE_LANE)
#include <immintrin.h>
#endif

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

inline constexpr int kLanes = 32;
inline constexpr int kSteps = 8;
inline constexpr int kTilePositions = kLanes * kSteps;

// Short rows need not pay for 8 steps.
inline constexpr int kFewSteps = 4;

// Neighbouring lanes as one register, for sums over the steps: g++ vectorizes
// loops over lanes, but not ones with a loop over steps inside. On the GPU a
// thread is one lane and a register a number; COUNTERWEIGHT_ONE_LANE makes it
// so where the GPU's code is tested on a CPU.
#ifdef COUNTERWEIGHT_ONE_LANE
// Values of one lane live in registers.
#define COUNTERWEIGHT_ALIGNED
using Vec = float;
using BitsVec = int32_t;
using WideVec = double;
inline constexpr int kVecLanes = 1;
inline constexpr int kWideLanes = 1;
#else
#define COUNTERWEIGHT_ALIGNED alignas(64)
#if defined(__AVX512F__)
#define COUNTERWEIGHT_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define COUNTERWEIGHT_VECTOR_BYTES 32
#else
#define COUNTERWEIGHT_VECTOR_BYTES 16
#endif
typedef float Vec __attribute__((vector_size(COUNTERWEIGHT_VECTOR_BYTES)));
typedef int32_t BitsVec
    __attribute__((vector_size(COUNTERWEIGHT_VECTOR_BYTES)));
typedef double WideVec __attribute__((vector_size(COUNTERWEIGHT_VECTOR_BYTES)));
#ifndef __AVX2__
typedef float HalfVec
    __attribute__((vector_size(COUNTERWEIGHT_VECTOR_BYTES / 2)));
#endif
inline constexpr int kVecLanes = sizeof(Vec) / sizeof(float);
inline constexpr int kWideLanes = sizeof(WideVec) / sizeof(double);
#undef COUNTERWEIGHT_VECTOR_BYTES
#endif

COUNTERWEIGHT_HD Vec splat(float x) { return spread<Vec>(x); }
COUNTERWEIGHT_HD WideVec splat_wide(double x) { return x - WideVec{}; }

// least and most: which zero they give of two that differ in sign is open, and
// so it may only be added, compared or multiplied.
#ifdef COUNTERWEIGHT_ONE_LANE
COUNTERWEIGHT_HD Vec absolute(Vec x) { return __builtin_fabsf(x); }
COUNTERWEIGHT_HD Vec least(Vec a, Vec b) { return __builtin_fminf(a, b); }
COUNTERWEIGHT_HD Vec most(Vec a, Vec b) { return __builtin_fmaxf(a, b); }
#else
COUNTERWEIGHT_HD Vec absolute(Vec x) {
  return reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x) & 0x7fffffff);
}
// b where a is NaN.
COUNTERWEIGHT_HD Vec least(Vec a, Vec b) { return a < b ? a : b; }
COUNTERWEIGHT_HD Vec most(Vec a, Vec b) { return a > b ? a : b; }
#endif
// The bits of |x|, and of x itself.
#ifdef COUNTERWEIGHT_ONE_LANE
COUNTERWEIGHT_HD BitsVec signed_bits(Vec x) {
  return static_cast<BitsVec>(bits_of(x));
}
COUNTERWEIGHT_HD BitsVec magnitude_bits(Vec x) {
  return static_cast<BitsVec>(bits_of(x) & 0x7fffffffu);
}
#else
COUNTERWEIGHT_HD BitsVec signed_bits(Vec x) {
  return reinterpret_cast<BitsVec>(x);
}
COUNTERWEIGHT_HD BitsVec magnitude_bits(Vec x) {
  return signed_bits(x) & 0x7fffffff;
}
#endif
COUNTERWEIGHT_HD Vec clip(Vec x, Vec low, Vec high) {
  return most(least(x, high), low);
}

// How far x lies from 0, which is not NaN.
#ifdef COUNTERWEIGHT_ONE_LANE
struct Reach {
  // |x|, and of a negative x the next larger number.
  Vec far;
  bool is_negative;

  // x > edge or x <= -edge, for edge > 0.
  COUNTERWEIGHT_HD bool is_beyond(Vec edge) const { return far > edge; }
  // `negative` or `positive`, where x is beyond an edge.
  COUNTERWEIGHT_HD Vec side(Vec positive, Vec negative) const {
    return is_negative ? negative : positive;
  }
};
COUNTERWEIGHT_HD Reach reach(Vec x) {
  const uint32_t bits = bits_of(x);
  return {float_of((bits & 0x7fffffffu) + (bits >> 31)), x < 0.0f};
}
#else
// Numbers above 0 are ordered as their bits are.
struct Reach {
  BitsVec far;
  BitsVec sign;  // all bits set where x is negative, or -0

  COUNTERWEIGHT_HD auto is_beyond(Vec edge) const {
    return far > reinterpret_cast<BitsVec>(edge);
  }
  COUNTERWEIGHT_HD Vec side(Vec positive, Vec negative) const {
    const BitsVec own = reinterpret_cast<BitsVec>(positive);
    return reinterpret_cast<Vec>(
        own ^ (sign & (own ^ reinterpret_cast<BitsVec>(negative))));
  }
};
COUNTERWEIGHT_HD Reach reach(Vec x) {
  const BitsVec bits = reinterpret_cast<BitsVec>(x);
  const BitsVec sign = bits >> 31;
  return {(bits & 0x7fffffff) - sign, sign};
}
#endif

// Each as if x were 0, or NaN for extrema, where `counts` is false, in the way
// that costs least. No sum is -0.
template <class Bool>
COUNTERWEIGHT_HD void add_where(Bool counts, Vec x, Vec& sum) {
#if defined(COUNTERWEIGHT_ONE_LANE)
  if (counts) sum += x;
#elif defined(__AVX512F__)
  sum = counts ? sum + x : sum;
#else
  sum += counts ? x : Vec{};
#endif
}

// Whole numbers, with exact products and sums.
template <class Bool>
COUNTERWEIGHT_HD void count_where(Bool counts, Vec x, Vec& sum) {
#ifdef COUNTERWEIGHT_ONE_LANE
  sum = __builtin_fmaf(counts ? 1.0f : 0.0f, x, sum);
#else
  add_where(counts, x, sum);
#endif
}

// `flag` is 0 or 1 in each lane.
COUNTERWEIGHT_HD void count_flag(Vec flag, Vec x, Vec& sum) {
#ifdef COUNTERWEIGHT_ONE_LANE
  if (flag != 0.0f) sum += x;
#else
  sum += flag * x;
#endif
}

template <class Bool>
COUNTERWEIGHT_HD void extend_where(Bool counts, Vec x, Vec& low, Vec& high) {
#if defined(COUNTERWEIGHT_ONE_LANE)
  if (counts) {
    low = least(x, low);
    high = most(x, high);
  }
#else
#ifdef __AVX512F__
  const Vec taken = counts ? x : splat(__builtin_nanf(""));
#else
  // All bits set is a NaN, and one instruction less than a choice.
  const Vec taken =
      reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x) | ~counts);
#endif
  low = least(taken, low);
  high = most(taken, high);
#endif
}

template <class V>
COUNTERWEIGHT_HD V load(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}

template <class V>
COUNTERWEIGHT_HD void store(V v, void* to) {
  __builtin_memcpy(to, &v, sizeof(v));
}

// kWideLanes floats in float64.
COUNTERWEIGHT_HD WideVec widened(const float* from) {
#if defined(COUNTERWEIGHT_ONE_LANE)
  return static_cast<double>(*from);
#elif defined(__AVX512F__)
  // By zero: the plain form warns of a register that it leaves undefined.
  return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from));
#elif defined(__AVX2__)
  // g++ 12 makes a convertvector of five instructions that wait for each other.
  return _mm256_cvtps_pd(_mm_loadu_ps(from));
#else
  return __builtin_convertvector(load<HalfVec>(from), WideVec);
#endif
}

#ifndef COUNTERWEIGHT_ONE_LANE
// The lower or upper half of x in float64.
template <bool kUpper>
COUNTERWEIGHT_HD WideVec widened_half(Vec x) {
#if defined(__AVX512F__)
  constexpr int k = kUpper ? 8 : 0;
  return _mm512_maskz_cvtps_pd(
      0xff, __builtin_shufflevector(x, x, k, k + 1, k + 2, k + 3, k + 4, k + 5,
                                    k + 6, k + 7));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_extractf128_ps(x, kUpper ? 1 : 0));
#else
  constexpr int kFirst = kUpper ? kWideLanes : 0;
  return WideVec{x[kFirst], x[kFirst + 1]};
#endif
}
#endif

// kVecLanes numbers of half(0), half(1), ..., kWideLanes in each, in float32.
template <class F>
COUNTERWEIGHT_HD Vec narrowed(F half) {
#if defined(COUNTERWEIGHT_ONE_LANE)
  return static_cast<float>(half(0));
#elif defined(__AVX512F__)
  // The plain forms warn of registers that they leave undefined.
  return __builtin_shufflevector(_mm512_maskz_cvtpd_ps(0xff, half(0)),
                                 _mm512_maskz_cvtpd_ps(0xff, half(1)), 0, 1, 2,
                                 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  return _mm256_set_m128(_mm256_cvtpd_ps(half(1)), _mm256_cvtpd_ps(half(0)));
#else
  const HalfVec parts[] = {__builtin_convertvector(half(0), HalfVec),
                           __builtin_convertvector(half(1), HalfVec)};
  return load<Vec>(parts);
#endif
}

// W = lanes that one thread holds, S = steps that are looked at together.
template <int W, int S>
struct COUNTERWEIGHT_ALIGNED Tile {
  float at[S][W];
#ifndef COUNTERWEIGHT_ONE_LANE
  // Tiles of 1 KB in a row would share cache sets and low address bits.
  float padding[16];
#endif

  // Lanes [g * kVecLanes, (g + 1) * kVecLanes) of step k.
  COUNTERWEIGHT_HD Vec vec(int k, int g) const {
    return load<Vec>(&at[k][g * kVecLanes]);
  }
  COUNTERWEIGHT_HD void set(int k, int g, Vec v) {
    store(v, &at[k][g * kVecLanes]);
  }
  // Lanes [h * kWideLanes, (h + 1) * kWideLanes) of step k in float64.
  COUNTERWEIGHT_HD WideVec wide(int k, int h) const {
    return widened(&at[k][h * kWideLanes]);
  }
};

template <int W, int S>
struct COUNTERWEIGHT_ALIGNED BitTile {
  uint32_t at[S][W];
};

template <class Lanes>
using TileOf = Tile<Lanes::kWidth, Lanes::kTileSteps>;
template <class Lanes>
using BitTileOf = BitTile<Lanes::kWidth, Lanes::kTileSteps>;

// One value per lane.
template <int W, class T>
struct COUNTERWEIGHT_ALIGNED LaneValues {
  T at[W];
};

// f(step, lane) for every position of the tile. The lane loop has no
// dependencies and no early exit.
template <int W, class F>
COUNTERWEIGHT_HD void for_each_position(int steps, F f) {
  COUNTERWEIGHT_UNROLL
  for (int k = 0; k < steps; ++k) {
    COUNTERWEIGHT_IVDEP
    for (int i = 0; i < W; ++i) f(k, i);
  }
}

// f(step). Bodies are short, and the counter would cost as much as they do:
// where a tile is a block, four steps are written out.
template <class F>
COUNTERWEIGHT_HD void for_each_step(int steps, F f) {
#ifdef COUNTERWEIGHT_ONE_LANE
  COUNTERWEIGHT_UNROLL
  for (int k = 0; k < steps; ++k) f(k);
#else
  static_assert(kFewSteps == 4 && kSteps % kFewSteps == 0);
  for (int k = 0; k < steps; k += kFewSteps) {
    f(k);
    f(k + 1);
    f(k + 2);
    f(k + 3);
  }
#endif
}

// f(step, group of lanes) for every register of the tile.
template <int W, class F>
COUNTERWEIGHT_HD void for_each_group(int steps, F f) {
  COUNTERWEIGHT_UNROLL
  for (int k = 0; k < steps; ++k) {
    for (int g = 0; g < W / kVecLanes; ++g) f(k, g);
  }
}

// f(0), f(1), ... f(N - 1), written out before compilers look for what can stay
// in registers.
template <int N, class F>
COUNTERWEIGHT_HD void unrolled(F f) {
  if constexpr (N > 0) {
    unrolled<N - 1>(f);
    f(N - 1);
  }
}

template <int W, class F>
COUNTERWEIGHT_HD void for_each_lane(F f) {
  COUNTERWEIGHT_IVDEP
  for (int i = 0; i < W; ++i) f(i);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_TILE_TILE_H_
