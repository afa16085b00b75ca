// Folds records pairwise by index, one column a lane: a warp reads 32 records
// of 32 columns at once, and keeps their tree in registers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_FOLD_KERNEL_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_FOLD_KERNEL_CUH_

#include "kernels/cuda/fold_columns.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Records that a warp folds. A power of two, so that its tree is a part of the
// whole's.
inline constexpr int kFoldGroup = 128;

// Sequences of records; of each, those at multiples of `stride` are folded in
// groups, the result in place of a group's first.
struct FoldJob {
  char* records;
  int64_t record_bytes;
  int64_t num_records;
  int64_t num_sequences;
  // [num_sequences + 1] the first record of each; null: one sequence of all.
  const int64_t* begins;
  // [num_sequences] null: all; else only where a rule fired.
  const RowState* states;
  int64_t stride;
  int64_t groups;  // of the longest sequence
};

namespace {

struct FoldSum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct FoldLow {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct FoldHigh {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// One column of the records of a group.
template <class T>
class FoldColumn {
 public:
  __device__ FoldColumn(char* first, int64_t bytes_apart)
      : first_(first), bytes_apart_(bytes_apart) {}

  // REQUIRES: 1 <= count <= kFoldGroup.
  template <class F>
  __device__ void fold(int count, F f) {
    // Chunks 0 and 1 make the left half of the tree, 2 and 3 the right one.
    static_assert(kFoldGroup == 4 * kLanes);
    T left{};
    T pending{};
    const int chunks = (count + kLanes - 1) / kLanes;
    COUNTERWEIGHT_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      T folded = fold_chunk(chunk * kLanes, count - chunk * kLanes, f);
      if (chunk % 2 == 0) {
        pending = folded;
      } else {
        folded = f(pending, folded);
        left = chunk == 1 ? folded : f(left, folded);
      }
    }
    if (chunks == 1) left = pending;
    if (chunks == 3) left = f(left, pending);
    at(0) = left;
  }

 private:
  __device__ T& at(int record) {
    return *reinterpret_cast<T*>(first_ + record * bytes_apart_);
  }

  // All loads are under way before the first sum.
  template <class F>
  __device__ T fold_chunk(int begin, int count, F f) {
    T values[kLanes];
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kLanes; ++i) {
      values[i] = i < count ? at(begin + i) : T{};
    }
    fold_pairs<1>(count, values, f);
    return values[0];
  }
  template <int kStride, class F>
  __device__ static void fold_pairs(int count, T (&values)[kLanes], F f) {
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kLanes; i += 2 * kStride) {
      const T pair = f(values[i], values[i + kStride]);
      if (i + kStride < count) values[i] = pair;
    }
    if constexpr (2 * kStride < kLanes) {
      fold_pairs<2 * kStride>(count, values, f);
    }
  }

  char* const first_;
  const int64_t bytes_apart_;
};

__global__ void fold_kernel(const __grid_constant__ FoldColumns columns,
                            const __grid_constant__ FoldJob job) {
  const auto lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t warp =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x / kLanes) +
      threadIdx.x / kLanes;
  const int column_blocks = (columns.count + kLanes - 1) / kLanes;
  const int64_t group = warp / column_blocks;
  const int64_t sequence = group / job.groups;
  if (sequence >= job.num_sequences) return;
  if (job.states != nullptr && job.states[sequence].fired == 0) return;
  int64_t begin = 0;
  int64_t end = job.num_records;
  if (job.begins != nullptr) {
    begin = job.begins[sequence];
    end = job.begins[sequence + 1];
  }
  begin += group % job.groups * kFoldGroup * job.stride;
  const int64_t left = (end - begin + job.stride - 1) / job.stride;
  const int column = static_cast<int>(warp % column_blocks) * kLanes + lane;
  if (left < 2 || column >= columns.count) return;
  const int count = left < kFoldGroup ? static_cast<int>(left) : kFoldGroup;
  char* const first =
      job.records + begin * job.record_bytes + columns.offset[column];
  const int64_t apart = job.stride * job.record_bytes;
  switch (columns.op[column]) {
    case FoldOp::kSum:
      return FoldColumn<double>(first, apart).fold(count, FoldSum());
    case FoldOp::kLow:
      return FoldColumn<double>(first, apart).fold(count, FoldLow());
    case FoldOp::kHigh:
      return FoldColumn<double>(first, apart).fold(count, FoldHigh());
    case FoldOp::kFirst:
      return FoldColumn<int64_t>(first, apart).fold(count, FoldLow());
    case FoldOp::kFloatLow:
      return FoldColumn<float>(first, apart).fold(count, FoldLow());
    case FoldOp::kFloatHigh:
      return FoldColumn<float>(first, apart).fold(count, FoldHigh());
  }
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_FOLD_KERNEL_CUH_
