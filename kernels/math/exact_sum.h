// Sums that depend neither on the order nor on the grouping of their addends.
//
// A sum is a row of float64 numbers, its bins. Bin k holds multiples of 2^g,
// where g falls by kBinBits from bin to bin. An addend is split from the top:
// q = (x + m) - m with m = 1.5 * 2^(52 + g) is x rounded to a multiple of 2^g;
// x - q goes on to the next bin. Splits are exact, and so are additions for
// kMostAddends, after which carry_up() makes room for as many. So a sum is a
// function of the multiset of its addends alone. After J. Demmel and H. D.
// Nguyen, Fast Reproducible Floating-Point Summation, 2013.
//
// kBins of them hold addends below kMostLow, and drop of each what is below
// 2^-175: sums of float32 numbers over rows of a length that occurs. Larger
// ones, which perplexities of broken runs are, go into kHighBins, times 2^-600
// so that no m overflows.
#ifndef COUNTERWEIGHT_KERNELS_MATH_EXACT_SUM_H_
#define COUNTERWEIGHT_KERNELS_MATH_EXACT_SUM_H_

#include <cstdint>

#include "kernels/math/bits.h"
#include "kernels/math/host_device.h"

namespace counterweight::kernels {

inline constexpr int kBins = 8;
inline constexpr int kHighBins = 24;
inline constexpr int kAllBins = kBins + kHighBins;
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

// The grids of the first bins.
inline constexpr int kTopGrid = 106;
inline constexpr int kTopHighGrid = 386;
// kMostAddends of them are below 2^53 multiples of the first grid.
inline constexpr double kMostLow = power_of_two(kTopGrid + 40 - 1);
inline constexpr double kHighScale = power_of_two(-600);

// m of bin k below a grid.
template <int kTop, int k>
struct BinMagic {
  static constexpr double kValue = 1.5 * power_of_two(52 + kTop - kBinBits * k);
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

// |x|; NaN of NaN.
template <class V>
COUNTERWEIGHT_HD V magnitude(V x) {
  if constexpr (sizeof(V) == sizeof(double)) {
    return __builtin_fabs(x);
  } else {
    using Bits = decltype(x < x);
    return reinterpret_cast<V>(reinterpret_cast<Bits>(x) & INT64_MAX);
  }
}

// Sum of |x|, rounded: NaN if one is, infinite if one is, 0 only if all are 0.
template <int kCount, class V>
COUNTERWEIGHT_HD V sum_of_magnitudes(const V (&x)[kCount]) {
  V sum = magnitude(x[0]);
  COUNTERWEIGHT_UNROLL
  for (int i = 1; i < kCount; ++i) sum += magnitude(x[i]);
  return sum;
}

// Splits each x into bins [kBegin, kEnd); x becomes what is left.
template <int kTop, int kBegin, int kEnd, int kCount, class V>
COUNTERWEIGHT_HD void split_into_bins(V (&x)[kCount], V* bins) {
  if constexpr (kBegin < kEnd) {
    constexpr double kMagic = BinMagic<kTop, kBegin>::kValue;
    const V magic = spread_wide<V>(kMagic);
    V bin = bins[kBegin];
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const V q = (x[i] + magic) - magic;
      bin += q;
      x[i] -= q;
    }
    bins[kBegin] = bin;
    split_into_bins<kTop, kBegin + 1, kEnd>(x, bins);
  }
}

// Lanes with |x| below the limit; NaN is not.
template <class V>
COUNTERWEIGHT_HD auto below(double limit, V x) {
  return magnitude(x) < spread_wide<V>(limit);
}
template <class V>
COUNTERWEIGHT_HD bool are_below(double limit, V x) {
  return !any_of(below(limit, x) == 0);
}

// Bins of a sum, or of those of a register's lanes. Trivial, so that it may lie
// in raw memory: call clear() first.
template <class V>
struct ExactBins {
  V low[kBins];
  V high[kHighBins];  // garbage unless has_high
  bool has_high;

  COUNTERWEIGHT_HD void clear() {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kBins; ++k) low[k] = V{};
    has_high = false;
  }

  COUNTERWEIGHT_HD void begin_high() {
    if (has_high) return;
    has_high = true;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kHighBins; ++k) high[k] = V{};
  }

  COUNTERWEIGHT_HD void add(V x) {
    V one[] = {x};
    add_each(one);
  }

  // Adds each of x, and changes them. Costs less than as many calls of add():
  // bins are read and written once, and so are the limits.
  template <int kCount>
  COUNTERWEIGHT_HD void add_each(V (&x)[kCount]) {
    const V most = sum_of_magnitudes(x);
    if (are_below(0x1p25, most)) {
      split_into_bins<kTopGrid, 3, 6>(x, low);
    } else if (are_below(0x1p65, most)) {
      split_into_bins<kTopGrid, 2, 6>(x, low);
    } else {
      COUNTERWEIGHT_UNROLL
      for (int i = 0; i < kCount; ++i) add_any(x[i]);
      return;
    }
    if (any_of(sum_of_magnitudes(x) != V{})) {
      split_into_bins<kTopGrid, 6, kBins>(x, low);
    }
  }

  // add() of any addend.
  COUNTERWEIGHT_RARE void add_any(V x) {
    const auto is_low = below(kMostLow, x);
    V small[] = {is_low ? x : V{}};
    split_into_bins<kTopGrid, 0, kBins>(small, low);
    const V large = is_low ? V{} : x;
    const auto is_finite = below(__builtin_inf(), large);
    low[0] += is_finite ? V{} : large;
    V scaled[] = {is_finite ? large * spread_wide<V>(kHighScale) : V{}};
    if (!any_of(scaled[0] != V{})) return;
    begin_high();
    split_into_bins<kTopHighGrid, 0, kHighBins>(scaled, high);
  }

  // Adds another sum, of at most kMostAddends since its last carry().
  COUNTERWEIGHT_HD void merge(const ExactBins& from) {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kBins; ++k) low[k] += from.low[k];
    if (!from.has_high) return;
    begin_high();
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kHighBins; ++k) high[k] += from.high[k];
  }

  // Moves to each bin what is a multiple of its grid in the next one, so that
  // equal sums have equal bins, and are as large as one addend.
  COUNTERWEIGHT_HD void carry() {
    carry_up<kTopGrid, kBins - 1>(low);
    if (has_high) carry_up<kTopHighGrid, kHighBins - 1>(high);
  }

  // The sum, rounded to float64. Changes the bins, but not their sum.
  COUNTERWEIGHT_HD V take() {
    carry();
    V sum = low[0];
    V errors{};
    add_down<kBins>(low, sum, errors);
    // NaN where the sum is not finite.
    const V small = errors == errors ? sum + errors : sum;
    return has_high ? take_high(sum, errors, small) : small;
  }

 private:
  template <int kTop, int k>
  COUNTERWEIGHT_HD static void carry_up(V* bins) {
    if constexpr (k > 0) {
      constexpr double kMagic = BinMagic<kTop, k - 1>::kValue;
      const V magic = spread_wide<V>(kMagic);
      const V carried = (bins[k] + magic) - magic;
      bins[k] -= carried;
      bins[k - 1] += carried;
      carry_up<kTop, k - 1>(bins);
    }
  }

  // Adds x to the sum, and what that loses to the errors.
  COUNTERWEIGHT_HD static void add_with_error(V x, V& sum, V& errors) {
    const V next = sum + x;
    const V added = next - sum;
    errors += (sum - (next - added)) + (x - added);
    sum = next;
  }

  // Adds bins from the largest down, so that the addition of the errors is the
  // one that rounds.
  template <int kCount>
  COUNTERWEIGHT_HD static void add_down(const V* bins, V& sum, V& errors) {
    COUNTERWEIGHT_UNROLL
    for (int k = 1; k < kCount; ++k) add_with_error(bins[k], sum, errors);
  }

  // `small`: the sum of the low bins, of which `rest` and `rest_errors` are.
  COUNTERWEIGHT_RARE V take_high(V rest, V rest_errors, V small) {
    V sum = high[0];
    V errors{};
    add_down<kHighBins>(high, sum, errors);
    const V scale = spread_wide<V>(kHighScale);
    const V unscale = spread_wide<V>(1.0 / kHighScale);
    add_with_error(rest * scale, sum, errors);
    errors += rest_errors * scale;
    const V all = (sum + errors) * unscale;
    // Not finite low bins decide.
    return (small - small == V{}) & (high_is_used()) ? all : small;
  }
  COUNTERWEIGHT_HD auto high_is_used() const {
    auto used = high[0] != V{};
    COUNTERWEIGHT_UNROLL
    for (int k = 1; k < kHighBins; ++k) used = used | (high[k] != V{});
    return used;
  }
};

// A sum's bins as kAllBins numbers, and back. `out`: the sum of nothing, or one
// with has_high.
COUNTERWEIGHT_HD void store_bins(const ExactBins<double>& sum, double* out) {
  for (int k = 0; k < kBins; ++k) out[k] = sum.low[k];
  if (!sum.has_high) return;
  for (int k = 0; k < kHighBins; ++k) out[kBins + k] = sum.high[k];
}
COUNTERWEIGHT_HD void load_bins(const double* bins, ExactBins<double>& sum) {
  for (int k = 0; k < kBins; ++k) sum.low[k] = bins[k];
  sum.has_high = true;
  for (int k = 0; k < kHighBins; ++k) sum.high[k] = bins[kBins + k];
}

// One sum, of any number of addends.
class ExactSum {
 public:
  COUNTERWEIGHT_HD ExactSum() { bins_.clear(); }

  COUNTERWEIGHT_HD void add(double x) {
    bins_.add(x);
    if (++addends_ % kMostAddends == 0) bins_.carry();
  }
  COUNTERWEIGHT_HD double sum() const {
    ExactBins<double> bins = bins_;
    return bins.take();
  }
  COUNTERWEIGHT_HD const ExactBins<double>& bins() const { return bins_; }

 private:
  ExactBins<double> bins_;
  int64_t addends_ = 0;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_MATH_EXACT_SUM_H_
