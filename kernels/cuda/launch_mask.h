// The launcher of mask_kernel.cuh, apart from launch.h because it knows neither
// plans nor columns.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_MASK_H_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_MASK_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace counterweight::kernels {

// MaskJob::first_bad if each byte is 0 or 1; cudaMemset with kAllBooleanByte
// makes it.
inline constexpr int kAllBooleanByte = 0x7f;
inline constexpr uint64_t kAllBoolean = 0x7f7f7f7f7f7f7f7fu;

// Device pointers.
struct MaskJob {
  const uint8_t* mask;
  SegmentsView segments;
  int64_t num_segments;
  // [rows of the segments] gets the bytes that are not 0 added; zero before.
  uint64_t* row_tokens;
  uint64_t* first_bad;  // the least position of a byte that is neither 0 nor 1
};

// Loads the kernel. A part of PrepareKernels.
cudaError_t PrepareMask();

cudaError_t LaunchMask(const MaskJob& job, cudaStream_t stream);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_MASK_H_
