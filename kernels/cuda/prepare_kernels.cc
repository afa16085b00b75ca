#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_mask.h"

namespace counterweight::kernels {

cudaError_t PrepareKernels(int* shared_bytes) {
  int device = 0;
  COUNTERWEIGHT_CUDA_TRY(cudaGetDevice(&device));
  COUNTERWEIGHT_CUDA_TRY(cudaDeviceGetAttribute(
      shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  COUNTERWEIGHT_CUDA_TRY(PrepareMask());
  COUNTERWEIGHT_CUDA_TRY(PrepareRows(*shared_bytes));
  COUNTERWEIGHT_CUDA_TRY(PrepareStatistics(*shared_bytes));
  COUNTERWEIGHT_CUDA_TRY(PrepareBoth(*shared_bytes));
  return PrepareOutputs(*shared_bytes);
}

}  // namespace counterweight::kernels
