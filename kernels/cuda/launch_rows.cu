#include "kernels/cuda/launch_on_device.cuh"
//
#include "kernels/cuda/launch_rows.cuh"

namespace counterweight::kernels {

cudaError_t CheckKernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, narrow_kernel);
}

}  // namespace counterweight::kernels
