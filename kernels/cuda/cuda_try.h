#ifndef COUNTERWEIGHT_KERNELS_CUDA_CUDA_TRY_H_
#define COUNTERWEIGHT_KERNELS_CUDA_CUDA_TRY_H_

#include <cuda_runtime_api.h>

// Returns from a function that returns cudaError_t.
#define COUNTERWEIGHT_CUDA_TRY(call)                        \
  do {                                                      \
    const cudaError_t error_of_call = (call);               \
    if (error_of_call != cudaSuccess) return error_of_call; \
  } while (false)

#endif  // COUNTERWEIGHT_KERNELS_CUDA_CUDA_TRY_H_
