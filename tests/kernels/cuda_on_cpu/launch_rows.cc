#include "tests/kernels/cuda_on_cpu/launch_on_cpu.h"
//
#include "kernels/cuda/fold_kernel.cuh"

namespace counterweight::kernels {

static bool MayTouchAll(const FoldColumns& /*columns*/, const FoldJob& job) {
  return MayTouch(job.records, 0, job.num_records * job.record_bytes) &&
         MayTouch(job.begins, 0, job.num_sequences + 1) &&
         MayTouch(job.states, 0, job.num_sequences) &&
         (job.begins == nullptr ||
          job.begins[job.num_sequences] <= job.num_records);
}

static bool MayTouchAll(const SegmentsJob& job) {
  return MayTouch(job.offsets, 0, job.rows + 1) &&
         MayTouch(job.row_segments, 0, job.rows + 1) &&
         MayTouch(job.segments, 0, job.row_segments[job.rows]);
}

}  // namespace counterweight::kernels

#include "kernels/cuda/launch_rows.cu"
