// Counts a mask that the host cannot read.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_MASK_KERNEL_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_MASK_KERNEL_CUH_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch_mask.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

// A warp for each segment. Integers, so the order of addition is free.
__global__ void mask_kernel(const __grid_constant__ MaskJob job) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t index = thread / kLanes;
  if (index >= job.num_segments) return;
  const int lane = static_cast<int>(thread % kLanes);
  const DeviceSegment segment = job.segments[index];
  uint32_t tokens = 0;
  uint64_t bad = kAllBoolean;
  for (int64_t i = segment.begin + lane; i < segment.end; i += kLanes) {
    const uint8_t value = job.mask[i];
    tokens += value != 0 ? 1u : 0u;
    if (value > 1 && bad == kAllBoolean) bad = static_cast<uint64_t>(i);
  }
  if (bad != kAllBoolean) {
    atomicMin(reinterpret_cast<unsigned long long*>(job.first_bad),
              static_cast<unsigned long long>(bad));
  }
  if (tokens > 0) {
    atomicAdd(
        reinterpret_cast<unsigned long long*>(job.row_tokens + segment.row),
        static_cast<unsigned long long>(tokens));
  }
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_MASK_KERNEL_CUH_
