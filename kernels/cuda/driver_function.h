// Functions of the driver that the runtime has no name for. To link the
// driver's library would keep the program from starting on machines without
// one.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DRIVER_FUNCTION_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DRIVER_FUNCTION_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {

// Stores the function `name`, as CUDA 12.0 declares it, in *function.
template <class Function>
cudaError_t FindInDriver(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  COUNTERWEIGHT_CUDA_TRY(cudaGetDriverEntryPointByVersion(
      name, &found, kVersion, cudaEnableDefault, &result));
#else
  COUNTERWEIGHT_CUDA_TRY(
      cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    return cudaErrorSymbolNotFound;
  }
  *function = reinterpret_cast<Function>(found);
  return cudaSuccess;
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DRIVER_FUNCTION_H_
