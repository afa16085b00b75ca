// The walk of kernels/walk with a warp for each segment. Apart from its launch,
// so that tests run this very function without a device.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_WALK_KERNEL_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_WALK_KERNEL_CUH_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/warp_lanes.cuh"
#include "kernels/walk/loss_row.h"
#include "kernels/walk/packed_records.h"
#include "kernels/walk/segment_walk.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

// Dynamic shared memory: layout.bytes for each warp.
template <bool kStats, bool kOutput, int kShapeIndex>
__global__ void __launch_bounds__(kThreads, MinBlocks(kShapeIndex))
    walk_kernel(const __grid_constant__ Plan plan,
                const __grid_constant__ DeviceJob job,
                const __grid_constant__ ColumnLayout layout) {
  using Lanes = WarpLanes<kShapeIndex, kStats, kOutput>;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const unsigned warps = blockDim.x / kLanes;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * warps + warp;
  if (index >= job.num_segments) return;
  const DeviceSegment segment = job.segments.at(index);
  const bool has_loss = Lanes::may(kNeedLoss) && plan.loss.active;
  RowState state{};
  if (!job.first_pass) {
    state = job.states[segment.row];
  } else if (has_loss) {
    initial_loss(plan.loss, job.loss, segment.row, state.loss);
  }
  if (!kStats && job.fired_rows_only && state.fired == 0) return;
  TileState<Lanes> tile;
  Accumulators<Lanes> sums;
  sums.columns.init(&layout, SharedMemory(warp * layout.bytes), Lanes::lane());
  sums.clear(plan);
  const SegmentTask task{segment.begin, segment.end,
                         state,         job.bases + index * plan.num_prefixes,
                         &job.loss,     !kStats && job.loss_only};
  walk_segment<Lanes, kStats, kOutput>(plan, job.batch, task, job.outputs, tile,
                                       sums);
  settle_segment<Lanes, kStats, kOutput>(plan, sums.columns.settled());
  PackedSegment record = segment_at(plan, job.records, index);
  if (kStats) {
    sums.fold_lanes(plan, record);
  } else if (has_loss) {
    sums.columns.fold_loss(record.loss);
  }
  if (kOutput) {
    const uint32_t reasons = Lanes::fold_or(sums.reasons);
    if (Lanes::writes() && reasons != 0 && job.reasons != nullptr) {
      atomicOr(&job.reasons[segment.row], reasons);
    }
  }
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WALK_KERNEL_CUH_
