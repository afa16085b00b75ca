// Launchers of all kernels but the walk.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_

#include "kernels/cuda/add_columns.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_on_device.cuh"
#include "kernels/cuda/row_kernels.cuh"
#include "kernels/cuda/settle_kernel.cuh"
#include "kernels/walk/packed_records.h"

namespace counterweight::kernels {

cudaError_t PrepareRows(int shared_bytes) {
  COUNTERWEIGHT_CUDA_TRY(Prepare(segments_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(settle_kernel, shared_bytes));
  COUNTERWEIGHT_CUDA_TRY(Prepare(settle_loss_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(bases_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(add_segments_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(add_rows_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(carry_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(narrow_kernel, 0));
  return Prepare(divide_kernel, 0);
}

cudaError_t LaunchSegments(const SegmentsJob& job, cudaStream_t stream) {
  return Launch(segments_kernel, Blocks(job.rows, kWarps), kThreads, 0, stream,
                job);
}

// Into the first of each row.
static cudaError_t LaunchAddSegments(const Plan& plan,
                                     const RecordColumns& columns,
                                     const DeviceJob& job,
                                     const RowState* states,
                                     cudaStream_t stream) {
  if (job.most_segments < 2) return cudaSuccess;
  const SegmentsToAdd segments = {job.records, segment_offsets(plan).bytes,
                                  job.batch.num_sequences, job.row_segments,
                                  states};
  const int64_t warps = job.batch.num_sequences * Blocks(columns.count, kLanes);
  return Launch(add_segments_kernel, Blocks(warps, kWarps), kThreads, 0, stream,
                columns, segments);
}

// Calls launch(first, count) for parts of `warps` that add to the totals, each
// after room was made for them.
template <class F>
static cudaError_t LaunchAdding(const RecordColumns& columns,
                                const DeviceJob& job, int64_t warps,
                                cudaStream_t stream, F launch) {
  for (int64_t first = 0; first < warps; first += kMostAddends) {
    if (first > 0 || !job.begins_totals) {
      COUNTERWEIGHT_CUDA_TRY(Launch(carry_kernel,
                                    Blocks(columns.count, kThreads), kThreads,
                                    0, stream, columns, job.totals));
    }
    const int64_t left = warps - first;
    COUNTERWEIGHT_CUDA_TRY(
        launch(first, left < kMostAddends ? left : int64_t{kMostAddends}));
  }
  return cudaSuccess;
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

cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream) {
  if (job.most_segments > 1) {
    if (plan.num_prefixes > 0) {
      COUNTERWEIGHT_CUDA_TRY(Launch(bases_kernel,
                                    Blocks(job.batch.num_sequences, kThreads),
                                    kThreads, 0, stream, plan, job));
    }
    COUNTERWEIGHT_CUDA_TRY(
        LaunchAddSegments(plan, ColumnsOfSegments(plan), job, nullptr, stream));
  }
  SettleLayout layout = MakeSettleLayout(plan, job.shared_bytes);
  const RecordColumns columns = ColumnsOfRows(plan);
  const int64_t warps = Blocks(job.batch.num_sequences, layout.rows);
  const auto launch = [&](int64_t first, int64_t count) {
    layout.first_row = first * layout.rows;
    return Launch(settle_kernel, count, kLanes,
                  layout.rows * (layout.segment_stride + layout.row_stride),
                  stream, plan, job, columns, layout);
  };
  const bool adds = job.makes_rows && job.totals != nullptr;
  return adds ? LaunchAdding(columns, job, warps, stream, launch)
              : launch(0, warps);
}

cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  COUNTERWEIGHT_CUDA_TRY(
      LaunchAddSegments(plan, ColumnsOfLossPass(plan), job,
                        job.fired_rows_only ? job.states : nullptr, stream));
  return Launch(settle_loss_kernel, Blocks(job.batch.num_sequences, kThreads),
                kThreads, 0, stream, plan, job);
}

cudaError_t LaunchAddRows(const Plan& plan, const DeviceJob& job,
                          cudaStream_t stream) {
  const RecordColumns columns = ColumnsOfRows(plan);
  const int64_t bytes = row_offsets(plan).bytes;
  const int64_t rows = job.batch.num_sequences;
  const auto launch = [&](int64_t first, int64_t count) {
    const int64_t first_row = first * kLanes;
    const RowsToAdd part = {
        job.rows + first_row * bytes, bytes,
        rows - first_row < count * kLanes ? rows - first_row : count * kLanes,
        job.totals};
    return Launch(add_rows_kernel, Blocks(count, kWarps), kThreads, 0, stream,
                  columns, part);
  };
  return LaunchAdding(columns, job, Blocks(rows, kLanes), stream, launch);
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
