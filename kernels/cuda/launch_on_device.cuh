// Loads kernels and starts them. Compiled with the toolkit's runtime, and by
// tests with a runtime of their own.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ON_DEVICE_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ON_DEVICE_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/grid.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Loads a kernel's code for the current device, and lets its blocks take
// `shared` bytes of dynamic shared memory. That limit is state of the kernel
// and the device, which all threads share: a launch must not change it.
template <class... Parameters>
cudaError_t Prepare(void (*kernel)(Parameters...), int shared) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes{};
  COUNTERWEIGHT_CUDA_TRY(cudaFuncGetAttributes(&attributes, function));
  if (shared == 0) return cudaSuccess;
  return cudaFuncSetAttribute(
      function, cudaFuncAttributeMaxDynamicSharedMemorySize,
      shared - static_cast<int>(attributes.sharedSizeBytes));
}

// `shared` bytes of dynamic shared memory for each block of `threads`.
template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t blocks, int threads,
                   int shared, cudaStream_t stream,
                   const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim.x = static_cast<unsigned>(blocks);
  config.blockDim.x = static_cast<unsigned>(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream;
  COUNTERWEIGHT_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, arguments...));
  // An earlier failure that no call has reported is reported here.
  return cudaGetLastError();
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ON_DEVICE_CUH_
