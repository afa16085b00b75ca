#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/driver.h"
#include "kernels/devices.h"

namespace counterweight::kernels {

bool IsBuiltWithCuda() { return true; }

int NumCudaDevices(std::string* error) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();  // clears the sticky error
    *error = WhyNoDevice(status);
    return 0;
  }
  if (count == 0) *error = "this machine has no CUDA device";
  return count;
}

}  // namespace counterweight::kernels
