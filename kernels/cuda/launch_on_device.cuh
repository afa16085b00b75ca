// Starts a kernel on the device.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ON_DEVICE_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ON_DEVICE_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/grid.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// `shared` bytes of dynamic shared memory for each block.
template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t blocks, int shared,
                   cudaStream_t stream, const Arguments&... arguments) {
  // Dynamic shared memory of a kernel without an opt-in.
  constexpr int kUnasked = 48 << 10;
  if (shared > kUnasked) {
    const cudaError_t error = cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel),
        cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(shared),
           stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ON_DEVICE_CUH_
