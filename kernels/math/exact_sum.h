// Sums that depend neither on the order nor on the grouping of their addends.
//
// A sum is kBins float64 numbers, its bins. Bin k holds multiples of 2^g, where
// g falls by kBinBits from bin to bin. An addend is split from the top:
// q = (x + m) - m with m = 1.5 * 2^(52 + g) is x rounded to a multiple of 2^g;
// x - q goes on to the next bin. Splits are exact, and so are additions for
// kMostAddends, after which carry_up() makes room for as many. So a sum is a
// function of the multiset of its addends alone. After J. Demmel and H. D.
// Nguyen, Fast Reproducible Floating-Point Summation, 2013.
//
// The bins cover the range of float32. Of each addend what is below 2^-135 is
// dropped; an addend of 2^127 and more counts as an infinity.
#ifndef COUNTERWEIGHT_KERNELS_MATH_EXACT_SUM_H_
#define COUNTERWEIGHT_KERNELS_MATH_EXACT_SUM_H_

#include <cstdint>

#include "kernels/math/bits.h"
#include "kernels/math/host_device.h"

namespace counterweight::kernels {

inline constexpr int kBins = 7;
inline constexpr int kBinBits = 40;
// Sums after carry_up() are as large as one addend.
inline constexpr int kMostAddends = 1 << 13;

inline namespace COUNTERWEIGHT_ISA {

constexpr double power_of_two(int exponent) {
  double power = 1.0;
  for (; exponent > 0; --exponent) power *= 2.0;
  for (; exponent < 0; ++exponent) power *= 0.5;
  return power;
}

// m of bin k.
template <int k>
struct BinMagic {
  static constexpr double kValue = 1.5 * power_of_two(52 + 106 - kBinBits * k);
};

// Whether the condition holds in a lane.
COUNTERWEIGHT_HD bool any_of(bool condition) { return condition; }
#ifndef COUNTERWEIGHT_ONE_LANE
template <class Lanes>
requires(sizeof(Lanes) > sizeof(double)) COUNTERWEIGHT_HD
    bool any_of(Lanes lanes) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Lanes) == 64) {
    return _mm512_cmplt_epi64_mask(reinterpret_cast<__m512i>(lanes),
                                   _mm512_setzero_si512()) != 0;
  }
#endif
#if defined(__AVX__)
  if constexpr (sizeof(Lanes) == 32) {
    return _mm256_movemask_pd(reinterpret_cast<__m256d>(lanes)) != 0;
  }
#endif
  uint64_t any = 0;
  for (unsigned i = 0; i < sizeof(Lanes) / sizeof(any); ++i) {
    any |= static_cast<uint64_t>(lanes[i]);
  }
  return any != 0;
}
#endif

// Splits x into bins [kBegin, kEnd); x becomes what is left.
template <int kBegin, int kEnd, class V>
COUNTERWEIGHT_HD void split_into_bins(V& x, V* bins) {
  if constexpr (kBegin < kEnd) {
    constexpr double kMagic = BinMagic<kBegin>::kValue;
    const V magic = spread_wide<V>(kMagic);
    const V q = (x + magic) - magic;
    bins[kBegin] += q;
    x -= q;
    split_into_bins<kBegin + 1, kEnd>(x, bins);
  }
}

// Whether |x| is below the limit in each lane; NaN is not.
template <class V>
COUNTERWEIGHT_HD bool are_below(double limit, V x) {
  const V most = spread_wide<V>(limit);
  return !any_of(((x < most) & (x > -most)) == 0);
}

// add_exact() of any addends.
template <class V>
COUNTERWEIGHT_RARE void add_any(V x, V* bins) {
  const V limit = spread_wide<V>(0x1p127);
  const auto is_in_range = (x < limit) & (x > -limit);
  bins[0] += is_in_range ? V{} : x * spread_wide<V>(__builtin_inf());
  x = is_in_range ? x : V{};
  split_into_bins<0, kBins>(x, bins);
}

// Adds x, a number or a register of them, to the sum, or sums, of
// bins [kBins].
template <class V>
COUNTERWEIGHT_HD void add_exact(V x, V* bins) {
  if (are_below(0x1p25, x)) {
    split_into_bins<3, 6>(x, bins);
  } else if (are_below(0x1p65, x)) {
    split_into_bins<2, 6>(x, bins);
  } else {
    add_any(x, bins);
    return;
  }
  if (any_of(x != V{})) split_into_bins<6, kBins>(x, bins);
}

// Moves to each bin what is a multiple of its grid in the next one, so that
// equal sums have equal bins.
template <int k, class V>
COUNTERWEIGHT_HD void carry_up(V* bins) {
  if constexpr (k > 0) {
    constexpr double kMagic = BinMagic<k - 1>::kValue;
    const V magic = spread_wide<V>(kMagic);
    const V carry = (bins[k] + magic) - magic;
    bins[k] -= carry;
    bins[k - 1] += carry;
    carry_up<k - 1>(bins);
  }
}

// The sum, rounded to float64. Changes the bins, but not their sum.
template <class V>
COUNTERWEIGHT_HD V take_sum(V* bins) {
  carry_up<kBins - 1>(bins);
  // From the largest down, with the errors of the additions beside them: the
  // last addition is the one that rounds.
  V sum = bins[0];
  V errors{};
  COUNTERWEIGHT_UNROLL
  for (int k = 1; k < kBins; ++k) {
    const V next = sum + bins[k];
    const V added = next - sum;
    errors += (sum - (next - added)) + (bins[k] - added);
    sum = next;
  }
  // NaN where the sum is not finite.
  return errors == errors ? sum + errors : sum;
}

// One sum.
class ExactSum {
 public:
  COUNTERWEIGHT_HD void add(double x) {
    add_exact(x, bins_);
    if (++addends_ % kMostAddends == 0) carry_up<kBins - 1>(bins_);
  }
  COUNTERWEIGHT_HD double sum() const {
    double bins[kBins];
    for (int k = 0; k < kBins; ++k) bins[k] = bins_[k];
    return take_sum(bins);
  }

 private:
  double bins_[kBins] = {};
  int64_t addends_ = 0;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_MATH_EXACT_SUM_H_
