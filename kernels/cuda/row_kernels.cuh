// Kernels over rows and results, one thread for each unless a comment differs.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_ROW_KERNELS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_ROW_KERNELS_CUH_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/walk/packed_records.h"
#include "kernels/walk/prefix_bases.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

// A warp for each row, as a row may have thousands of segments. Rows without
// positions have an empty one.
__global__ void segments_kernel(const __grid_constant__ SegmentsJob job) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = thread / kLanes;
  if (row >= job.rows) return;
  const int64_t first = job.row_segments[row];
  const int64_t count = job.row_segments[row + 1] - first;
  const int64_t begin = job.offsets[row];
  const int64_t end = job.offsets[row + 1];
  for (int64_t i = thread % kLanes; i < count; i += kLanes) {
    const int64_t from = begin + i * kSegmentPositions;
    const int64_t to = from + kSegmentPositions;
    job.segments[first + i] = {from, to < end ? to : end, row};
  }
}

__global__ void bases_kernel(const __grid_constant__ Plan plan,
                             const __grid_constant__ DeviceJob job) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= job.batch.num_sequences) return;
  const int64_t first = job.row_segments[row];
  const int64_t count = job.row_segments[row + 1] - first;
  find_bases(
      plan, count,
      [&](int64_t i) { return segment_at(plan, job.records, first + i).sums; },
      job.bases + first * plan.num_prefixes);
}

__global__ void settle_loss_kernel(const __grid_constant__ Plan plan,
                                   const __grid_constant__ DeviceJob job) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= job.batch.num_sequences) return;
  if (job.fired_rows_only && job.states[row].fired == 0) return;
  LossRow& state = job.states[row].loss;
  PackedRow out = row_at(plan, job.rows, row);
  const int64_t first =
      job.row_segments != nullptr ? job.row_segments[row] : row;
  LossRecord& loss = segment_at(plan, job.records, first).loss;
  take_statistics(out, loss);
  if (plan.loss.needs_row_gradient) {
    state.hand_back = hand_back(plan.loss, loss, state);
  }
  add_row_loss(plan.loss, out.token_sums[kColumnTokens], state, loss, out);
}

__global__ void narrow_kernel(const uint32_t* reasons, int64_t count,
                              uint16_t* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = static_cast<uint16_t>(reasons[i]);
}

__global__ void divide_kernel(float* weights, int64_t count, double divisor) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    weights[i] = static_cast<float>(static_cast<double>(weights[i]) / divisor);
  }
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_ROW_KERNELS_CUH_
