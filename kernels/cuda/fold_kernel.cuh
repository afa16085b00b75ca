// Folds records pairwise by index, one column a lane: a warp reads 32 records
// of 32 columns at once.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_FOLD_KERNEL_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_FOLD_KERNEL_CUH_

#include "kernels/cuda/fold_columns.h"
#include "kernels/cuda/fold_lanes.cuh"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Records that a warp folds. A power of two, so that its tree is a part of the
// whole's.
inline constexpr int kFoldGroup = kLanes;

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
  FoldLanes(columns.op[column])
      .fold(first, job.stride * job.record_bytes, count,
            (columns.only_sums >> column / kLanes & 1u) != 0, first);
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_FOLD_KERNEL_CUH_
