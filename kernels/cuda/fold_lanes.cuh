// One column of up to 32 records, folded pairwise by index in registers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_FOLD_LANES_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_FOLD_LANES_CUH_

#include <cstdint>

#include "kernels/cuda/fold_columns.h"
#include "kernels/cuda/grid.h"
#include "kernels/math/bits.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

// The lanes of a warp fold columns of different kinds, so that each step is one
// for all kinds: a branch would let each kind wait for memory by itself.
class FoldLanes {
 public:
  __device__ explicit FoldLanes(FoldOp op)
      : is_sum_(op == FoldOp::kSum),
        is_integer_(op == FoldOp::kFirst),
        is_low_(op == FoldOp::kLow || op == FoldOp::kFloatLow),
        is_float_(op == FoldOp::kFloatLow || op == FoldOp::kFloatHigh) {}

  // Replaces the column in the first of `count` records, 1 to 32, so many bytes
  // apart, by the fold of all. only_sums: the op of every lane is kSum.
  __device__ void fold(const char* first, int64_t bytes_apart, int count,
                       bool only_sums, char* to) const {
    if (only_sums) {
      const double sum = folded<double>(
          count,
          [&](int i) {
            return *reinterpret_cast<const double*>(first + i * bytes_apart);
          },
          [](double a, double b) { return a + b; });
      *reinterpret_cast<double*>(to) = sum;
      return;
    }
    store(to, folded<uint64_t>(
                  count, [&](int i) { return load(first + i * bytes_apart); },
                  [&](uint64_t a, uint64_t b) { return pair(a, b); }));
  }

 private:
  // All loads are under way before the first sum.
  template <class T, class Load, class Pair>
  __device__ static T folded(int count, Load load, Pair pair) {
    T values[kLanes];
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kLanes; ++i) values[i] = i < count ? load(i) : T{};
    fold_pairs<1>(count, values, pair);
    return values[0];
  }
  template <int kStride, class T, class Pair>
  __device__ static void fold_pairs(int count, T (&values)[kLanes], Pair pair) {
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kLanes; i += 2 * kStride) {
      const T both = pair(values[i], values[i + kStride]);
      if (i + kStride < count) values[i] = both;
    }
    if constexpr (2 * kStride < kLanes) {
      fold_pairs<2 * kStride>(count, values, pair);
    }
  }

  __device__ void store(char* to, uint64_t value) const {
    if (is_float_) {
      *reinterpret_cast<float*>(to) = static_cast<float>(double_of(value));
    } else {
      *reinterpret_cast<uint64_t*>(to) = value;
    }
  }
  // A float as the double that it is.
  __device__ uint64_t load(const char* from) const {
    if (!is_float_) return *reinterpret_cast<const uint64_t*>(from);
    const float x = *reinterpret_cast<const float*>(from);
    return bits_of(static_cast<double>(x));
  }

  __device__ uint64_t pair(uint64_t a, uint64_t b) const {
    const double x = double_of(a);
    const double y = double_of(b);
    if (is_sum_) return bits_of(x + y);
    const bool takes = is_integer_
                           ? static_cast<int64_t>(b) < static_cast<int64_t>(a)
                       : is_low_ ? y < x
                                 : y > x;
    return takes ? b : a;
  }

  const bool is_sum_;
  const bool is_integer_;
  const bool is_low_;
  const bool is_float_;
};

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_FOLD_LANES_CUH_
