#include "kernels/cuda/launch_mask.h"
#include "kernels/cuda/launch_on_device.cuh"
#include "kernels/cuda/mask_kernel.cuh"

namespace counterweight::kernels {

cudaError_t PrepareMask() { return Prepare(mask_kernel, 0); }

cudaError_t LaunchMask(const MaskJob& job, cudaStream_t stream) {
  return Launch(mask_kernel, Blocks(job.num_segments, kWarps), kThreads, 0,
                stream, job);
}

}  // namespace counterweight::kernels
