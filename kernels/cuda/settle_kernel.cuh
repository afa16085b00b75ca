// Decisions and records of rows, a lane for each. A warp has the records of its
// rows in shared memory: a lane that read or wrote its own in device memory
// would take a sector for each number.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_SETTLE_KERNEL_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_SETTLE_KERNEL_CUH_

#include "kernels/cuda/add_columns.cuh"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/walk/packed_records.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The rows of a warp in shared memory: so many records of segments, then of
// rows, each this many bytes apart. An odd number of doubles keeps the lanes'
// records in different banks.
struct SettleLayout {
  int32_t rows;
  int32_t segment_stride;
  int32_t row_stride;
  int64_t first_row;  // of the launch
};

namespace {

// The sums of a row's segments are in its first.
__global__ void settle_kernel(const __grid_constant__ Plan plan,
                              const __grid_constant__ DeviceJob job,
                              const __grid_constant__ RecordColumns columns,
                              const __grid_constant__ SettleLayout layout) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t first =
      layout.first_row + static_cast<int64_t>(blockIdx.x) * layout.rows;
  const int64_t left = job.batch.num_sequences - first;
  const int count = left < layout.rows ? static_cast<int>(left) : layout.rows;
  char* const segments = reinterpret_cast<char*>(SharedMemory(0));
  char* const rows = segments + layout.rows * layout.segment_stride;

  const int32_t segment_bytes = segment_offsets(plan).bytes;
  int64_t own = first + lane;
  if (job.row_segments != nullptr && lane < count) own = job.row_segments[own];
  for (int r = 0; r < count; ++r) {
    const int64_t index = __shfl_sync(0xffffffffu, own, r);
    const char* const from = job.records + index * segment_bytes;
    char* const to = segments + r * layout.segment_stride;
    constexpr int kWord = static_cast<int>(sizeof(double));
    for (int at = lane * kWord; at < segment_bytes; at += kLanes * kWord) {
      copy_word_to_shared(to + at, from + at);
    }
  }
  wait_for_copies();
  __syncwarp();

  if (lane < count) {
    const int64_t row = first + lane;
    PackedSegment record =
        packed_segment(plan, segments + lane * layout.segment_stride);
    RowState state{};
    decide_row(plan, job.loss, row, record, state);
    job.states[row] = state;
    if (state.fired != 0 && job.reasons != nullptr) job.reasons[row] = 0;
    if (job.row_tokens != nullptr) {
      job.row_tokens[row] = record.sums[kColumnTokens];
    }
    if (job.makes_rows) {
      PackedRow out = packed_row(plan, rows + lane * layout.row_stride);
      make_row_record(plan, record, state, out);
    }
  }
  if (!job.makes_rows) return;
  __syncwarp();

  const int32_t row_bytes = row_offsets(plan).bytes;
  if (job.totals != nullptr) {
    for (int c = lane; c < columns.count; c += kLanes) {
      add_column(columns.op[c], rows + columns.offset[c], layout.row_stride,
                 count, job.totals + columns.total[c]);
    }
    return;
  }
  char* const out = job.rows + first * row_bytes;
  for (int r = 0; r < count; ++r) {
    const auto* const from =
        reinterpret_cast<const double*>(rows + r * layout.row_stride);
    auto* const to = reinterpret_cast<double*>(out + int64_t{r} * row_bytes);
    const int words = row_bytes / static_cast<int>(sizeof(double));
    for (int i = lane; i < words; i += kLanes) to[i] = from[i];
  }
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_SETTLE_KERNEL_CUH_
