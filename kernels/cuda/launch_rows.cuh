// Launchers of all kernels but the walk.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_

#include "kernels/cuda/fold_kernel.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_on_device.cuh"
#include "kernels/cuda/packed_records.h"
#include "kernels/cuda/row_kernels.cuh"
#include "kernels/cuda/settle_kernel.cuh"

namespace counterweight::kernels {

cudaError_t PrepareRows(int shared_bytes) {
  COUNTERWEIGHT_CUDA_TRY(Prepare(segments_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(settle_kernel, shared_bytes));
  COUNTERWEIGHT_CUDA_TRY(Prepare(settle_loss_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(bases_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(fold_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(narrow_kernel, 0));
  return Prepare(divide_kernel, 0);
}

cudaError_t LaunchSegments(const SegmentsJob& job, cudaStream_t stream) {
  return Launch(segments_kernel, Blocks(job.rows, kWarps), kThreads, 0, stream,
                job);
}

// `longest`: records of the longest sequence. Those at multiples of job.stride
// are left of an earlier fold.
static cudaError_t LaunchFold(const FoldColumns& columns, FoldJob job,
                              int64_t longest, cudaStream_t stream) {
  const int64_t column_blocks = Blocks(columns.count, kLanes);
  for (; job.stride < longest; job.stride *= kFoldGroup) {
    job.groups = Blocks(Blocks(longest, job.stride), kFoldGroup);
    const int64_t warps = job.num_sequences * job.groups * column_blocks;
    COUNTERWEIGHT_CUDA_TRY(Launch(fold_kernel, Blocks(warps, kWarps), kThreads,
                                  0, stream, columns, job));
  }
  return cudaSuccess;
}

// Into the first of each row.
static cudaError_t LaunchFoldSegments(const Plan& plan,
                                      const FoldColumns& columns,
                                      const DeviceJob& job,
                                      const RowState* states,
                                      cudaStream_t stream) {
  FoldJob fold{};
  fold.records = job.records;
  fold.record_bytes = segment_offsets(plan).bytes;
  fold.num_records = job.num_segments;
  fold.num_sequences = job.batch.num_sequences;
  fold.begins = job.row_segments;
  fold.states = states;
  fold.stride = 1;
  return LaunchFold(columns, fold, job.most_segments, stream);
}

static SettleLayout MakeSettleLayout(const Plan& plan, int shared_bytes) {
  constexpr auto kDouble = static_cast<int32_t>(sizeof(double));
  SettleLayout layout{.rows = kLanes,
                      .segment_stride = segment_offsets(plan).bytes | kDouble,
                      .row_stride = row_offsets(plan).bytes | kDouble};
  const int32_t of_row = layout.segment_stride + layout.row_stride;
  while (layout.rows > 1 && layout.rows * of_row > shared_bytes) {
    layout.rows /= 2;
  }
  return layout;
}

int RowsOfWarp(const Plan& plan, int shared_bytes) {
  return MakeSettleLayout(plan, shared_bytes).rows;
}

cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream) {
  if (job.most_segments > 1) {
    if (plan.num_prefixes > 0) {
      COUNTERWEIGHT_CUDA_TRY(Launch(bases_kernel,
                                    Blocks(job.batch.num_sequences, kThreads),
                                    kThreads, 0, stream, plan, job));
    }
    COUNTERWEIGHT_CUDA_TRY(LaunchFoldSegments(plan, ColumnsOfSegments(plan),
                                              job, nullptr, stream));
  }
  const SettleLayout layout = MakeSettleLayout(plan, job.shared_bytes);
  return Launch(settle_kernel, Blocks(job.batch.num_sequences, layout.rows),
                kLanes,
                layout.rows * (layout.segment_stride + layout.row_stride),
                stream, plan, job, ColumnsOfRows(plan), layout);
}

cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  COUNTERWEIGHT_CUDA_TRY(
      LaunchFoldSegments(plan, ColumnsOfLossPass(plan), job,
                         job.fired_rows_only ? job.states : nullptr, stream));
  return Launch(settle_loss_kernel, Blocks(job.batch.num_sequences, kThreads),
                kThreads, 0, stream, plan, job);
}

cudaError_t LaunchFoldRows(const Plan& plan, const DeviceJob& job,
                           cudaStream_t stream) {
  FoldJob fold{};
  fold.records = job.rows;
  fold.record_bytes = row_offsets(plan).bytes;
  fold.num_records = job.batch.num_sequences;
  fold.num_sequences = 1;
  fold.stride = job.folds_rows ? RowsOfWarp(plan, job.shared_bytes) : 1;
  return LaunchFold(ColumnsOfRows(plan), fold, fold.num_records, stream);
}

cudaError_t LaunchNarrow(const uint32_t* reasons, int64_t count, uint16_t* out,
                         cudaStream_t stream) {
  return Launch(narrow_kernel, Blocks(count, kThreads), kThreads, 0, stream,
                reasons, count, out);
}

cudaError_t LaunchDivide(float* weights, int64_t count, double divisor,
                         cudaStream_t stream) {
  return Launch(divide_kernel, Blocks(count, kThreads), kThreads, 0, stream,
                weights, count, divisor);
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_
