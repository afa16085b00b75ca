#include "tests/kernels/cuda_on_cpu/launch_on_cpu.h"
//
#include "kernels/cuda/launch_mask.h"

inline int __popc(uint32_t bits) { return __builtin_popcount(bits); }
inline void atomicAdd(unsigned long long* target, unsigned long long value) {
  *target += value;
}
inline void atomicMin(unsigned long long* target, unsigned long long value) {
  if (value < *target) *target = value;
}

namespace counterweight::kernels {

static bool MayTouchAll(const MaskJob& job) {
  if (!MayTouchSegments(job.segments, job.num_segments) ||
      !MayTouch(job.first_bad, 0, 1)) {
    return false;
  }
  for (int64_t i = 0; i < job.num_segments; ++i) {
    const DeviceSegment segment = job.segments.at(i);
    if (!MayTouch(job.mask, segment.begin, segment.end) ||
        !MayTouch(job.row_tokens, segment.row, segment.row + 1)) {
      return false;
    }
  }
  return true;
}

}  // namespace counterweight::kernels

#include "kernels/cuda/launch_mask.cu"
