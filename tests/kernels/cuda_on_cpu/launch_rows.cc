#include "tests/kernels/cuda_on_cpu/launch_on_cpu.h"

inline void atomicAdd(double* target, double value) { *target += value; }
inline void atomicMax(unsigned long long* target, unsigned long long value) {
  if (value > *target) *target = value;
}

#include "kernels/cuda/add_columns.cuh"

namespace counterweight::kernels {

static bool MayTouchAll(const RecordColumns& /*columns*/,
                        const SegmentsToAdd& job) {
  return MayTouch(job.row_segments, 0, job.rows + 1) &&
         MayTouch(job.records, 0,
                  job.row_segments[job.rows] * job.record_bytes) &&
         MayTouch(job.states, 0, job.rows);
}

static bool MayTouchAll(const RecordColumns& columns, const RowsToAdd& job) {
  return MayTouch(job.records, 0, job.rows * job.record_bytes) &&
         MayTouch(job.totals, 0, columns.totals);
}

static bool MayTouchAll(const RecordColumns& columns, const double* totals) {
  return MayTouch(totals, 0, columns.totals);
}

static bool MayTouchAll(const SegmentsJob& job) {
  return MayTouch(job.offsets, 0, job.rows + 1) &&
         MayTouch(job.row_segments, 0, job.rows + 1) &&
         MayTouch(job.segments, 0, job.row_segments[job.rows]);
}

}  // namespace counterweight::kernels

#include "kernels/cuda/launch_rows.cu"
