// The bodies of Passes; included by the isa_*.cc alone.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_PASSES_IMPL_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_PASSES_IMPL_H_

#include <cstdint>

#include "kernels/doctor/drift_pass_impl.h"
#include "kernels/doctor/passes.h"
#include "kernels/math/bits.h"
#include "kernels/math/exp.h"
#include "kernels/math/log.h"
#include "kernels/tile/tile.h"

namespace counterweight::kernels::doctor {
inline namespace COUNTERWEIGHT_ISA {

// kVecLanes bytes as integers. g++ 12 makes a loop, or a convertvector, of many
// instructions.
COUNTERWEIGHT_HD BitsVec bytes_of(const uint8_t* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<BitsVec>(_mm512_maskz_cvtepu8_epi32(
      0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<BitsVec>(_mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  BitsVec values;
  for (int lane = 0; lane < kVecLanes; ++lane) values[lane] = from[lane];
  return values;
#endif
}

COUNTERWEIGHT_HD Vec capped(Vec x) {
  const Vec size = x < 0.0f ? -x : x;
  return size < 4.0f ? size : splat(4.0f);
}

// The sums of kPassLanes lanes, lane i of tokens i, i + 16 and so on: in
// float32 over a block of tokens, in float64 over the blocks, so that the bits
// do not depend on the width of a register.
inline constexpr int64_t kBlock = 16 * kPassLanes;
template <int kCount>
struct LaneTotals {
  static constexpr int kParts = kPassLanes / kVecLanes;
  double lanes[kCount][kPassLanes] = {};

  template <class AddToken>
  COUNTERWEIGHT_HD void add(int64_t n, AddToken add_token) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = begin + kBlock < n ? begin + kBlock : n;
      for (int part = 0; part < kParts; ++part) {
        Vec sums[kCount] = {};
        for (int64_t i = begin; i < end; i += kPassLanes) {
          add_token(i + part * kVecLanes, sums);
        }
        for (int k = 0; k < kCount; ++k) {
          for (int lane = 0; lane < kVecLanes; ++lane) {
            lanes[k][part * kVecLanes + lane] += sums[k][lane];
          }
        }
      }
    }
  }

  COUNTERWEIGHT_HD double sum(int k) const {
    double total = 0.0;
    for (int lane = 0; lane < kPassLanes; ++lane) total += lanes[k][lane];
    return total;
  }
};

template <int kStreams>
void count_streams(const float* const* streams, const uint8_t* mask, int64_t n,
                   Counts* counts) {
  // -1 where a condition holds, so sums are negative counts. Values that are
  // not counted are 0 and equal, which is subtracted.
  struct Lanes {
    BitsVec kept, valid;
    BitsVec zero[kStreams], minus_one[kStreams], equal[kMostStreams];
    Vec smallest[kStreams], largest[kStreams];
  } sums = {};
  for (int64_t i = 0; i < n; i += kVecLanes) {
    const BitsVec kept = bytes_of(mask + i) != 0;
    Vec x[kStreams];
    Vec no_number{};  // 0, or NaN
    for (int s = 0; s < kStreams; ++s) {
      x[s] = load<Vec>(streams[s] + i);
      no_number += x[s] - x[s];
    }
    const BitsVec valid = kept & (no_number == 0.0f);
    sums.kept += kept;
    sums.valid += valid;
    for (int s = 0; s < kStreams; ++s) {
      x[s] = reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x[s]) & valid);
      sums.zero[s] += x[s] == 0.0f;
      sums.minus_one[s] += x[s] == -1.0f;
      sums.smallest[s] = x[s] < sums.smallest[s] ? x[s] : sums.smallest[s];
      sums.largest[s] = x[s] > sums.largest[s] ? x[s] : sums.largest[s];
    }
    sums.equal[0] += x[0] == x[1];
    if constexpr (kStreams == 3) {
      sums.equal[1] += x[1] == x[2];
      sums.equal[2] += x[0] == x[2];
    }
  }
  const auto total = [](BitsVec lanes) {
    int64_t sum = 0;
    for (int lane = 0; lane < kVecLanes; ++lane) sum -= lanes[lane];
    return sum;
  };
  const int64_t valid = total(sums.valid);
  counts->tokens += valid;
  counts->non_finite += total(sums.kept) - valid;
  for (int s = 0; s < kStreams; ++s) {
    StreamCounts& into = counts->streams[s];
    into.zero += total(sums.zero[s]) - (n - valid);
    into.minus_one += total(sums.minus_one[s]);
    for (int lane = 0; lane < kVecLanes; ++lane) {
      const float low = sums.smallest[s][lane], high = sums.largest[s][lane];
      if (low < into.smallest) into.smallest = low;
      if (high > into.largest) into.largest = high;
    }
  }
  constexpr int kPairs = kStreams == 3 ? 3 : 1;
  for (int pair = 0; pair < kPairs; ++pair) {
    counts->equal[pair] += total(sums.equal[pair]) - (n - valid);
  }
}

inline void count(const float* const* streams, const uint8_t* mask, int64_t n,
                  Counts* counts) {
  if (streams[2] == nullptr) {
    count_streams<2>(streams, mask, n, counts);
  } else {
    count_streams<3>(streams, mask, n, counts);
  }
}

inline void sum_repairs(const PairInput& in, double* out) {
  LaneTotals<kYY + 1> totals;
  constexpr float kLn10 = 2.30258509f;
  constexpr float kLn2 = 0.693147181f;
  totals.add(in.n, [&](int64_t i, Vec* sums) COUNTERWEIGHT_INLINE_LAMBDA {
    const Vec x = load<Vec>(in.x + i), y = load<Vec>(in.y + i);
    const Vec weight = load<Vec>(in.weight + i), link = load<Vec>(in.link + i);
    const Vec next_x = load<Vec>(in.x + i + 1),
              next_y = load<Vec>(in.y + i + 1);
    // The token before, if it is of the same row.
    const Vec before = load<Vec>(in.link + i - 1);
    const auto has_before = before != 0.0f;
    const Vec zero{};
    const Vec x_before = has_before ? load<Vec>(in.x + i - 1) : zero;
    const Vec y_before = has_before ? load<Vec>(in.y + i - 1) : zero;
    const Vec distance = capped(y - x);
    sums[kCapped] += weight * distance;
    sums[kPairs] += link;
    sums[kCappedPairs] += link * (0.5f * (distance + capped(next_y - next_x)));
    sums[kEarly] += link * capped(next_y - x);
    sums[kLate] += link * capped(y - next_x);
    sums[kXLog10] += weight * capped(y - x * kLn10);
    sums[kXLog2] += weight * capped(y - x * kLn2);
    sums[kYLog10] += weight * capped(y * kLn10 - x);
    sums[kYLog2] += weight * capped(y * kLn2 - x);
    sums[kXCumulative] += weight * capped(y - (x - x_before));
    sums[kYCumulative] += weight * capped((y - y_before) - x);
    sums[kXX] += weight * (x * x);
    sums[kYY] += weight * (y * y);
  });
  for (int k = 0; k <= kYY; ++k) out[k] = totals.sum(k);
}

// log(p / (1 - p)) of x = log p in (-20, 0), within 12.
COUNTERWEIGHT_HD Vec logit(Vec x) {
  const Vec z = x - log_terms(-exp_terms(x).expm1);
  const Vec raised = z > -12.0f ? z : splat(-12.0f);
  return raised < 12.0f ? raised : splat(12.0f);
}

inline void sum_ratios(const PairInput& in, double* out) {
  LaneTotals<kNumPairSums - kAbsolute> totals;
  totals.add(in.n, [&](int64_t i, Vec* all) COUNTERWEIGHT_INLINE_LAMBDA {
    Vec* const sums = all - kAbsolute;
    const Vec x = load<Vec>(in.x + i), y = load<Vec>(in.y + i);
    const Vec weight = load<Vec>(in.weight + i);
    const Vec d = y - x;
    const Vec raised = d > -20.0f ? d : splat(-20.0f);
    const Vec clipped = raised < 20.0f ? raised : splat(20.0f);
    const ExpTermsOf<Vec> terms = exp_terms(clipped);
    const Vec u = terms.expm1;
    const Vec v = exp_terms(-clipped).expm1;
    const Vec zero{};
    const Vec size = d < 0.0f ? -d : d;
    sums[kAbsolute] += weight * size;
    sums[kUp] += weight * (d > 0.0f ? d : zero);
    sums[kU] += weight * u;
    sums[kUU] += weight * (u * u);
    sums[kV] += weight * v;
    sums[kVV] += weight * (v * v);
    sums[kK3] += weight * terms.k3;
    const auto inside = (x < 0.0f) & (y < 0.0f) & (x > -20.0f) & (y > -20.0f);
    const Vec one = splat(1.0f);
    const Vec used = inside ? weight : zero;
    const Vec a = used * logit(inside ? x : -one);
    const Vec b = used * logit(inside ? y : -one);
    sums[kLogits] += used;
    sums[kLogitX] += a;
    sums[kLogitY] += b;
    sums[kLogitXX] += a * a;
    sums[kLogitYY] += b * b;
    sums[kLogitXY] += a * b;
  });
  for (int k = kAbsolute; k < kNumPairSums; ++k) {
    out[k] = totals.sum(k - kAbsolute);
  }
}

inline void sum_pairs(const PairInput& input, double* sums) {
  sum_repairs(input, sums);
  sum_ratios(input, sums);
}

inline void exponentials(const double* x, int64_t n, double* exp,
                         double* expm1) {
  int64_t i = 0;
  for (; i + kWideLanes <= n; i += kWideLanes) {
    const auto terms = exp_terms64(load<WideVec>(x + i));
    store(terms.exp, exp + i);
    store(terms.expm1, expm1 + i);
  }
  for (; i < n; ++i) {
    const auto terms = exp_terms64(x[i]);
    exp[i] = terms.exp;
    expm1[i] = terms.expm1;
  }
}

inline void logarithms(const double* x, int64_t n, double* log) {
  for (int64_t i = 0; i < n; ++i) log[i] = log64(x[i]);
}

constexpr Passes make_passes(const char* name) {
  return {name,       &count,        &sum_pairs, &sum_repairs,
          &sum_drift, &exponentials, &logarithms};
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_PASSES_IMPL_H_
