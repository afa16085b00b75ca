#include "kernels/cuda/placement.h"

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {

cudaError_t FindPlacement(const void* memory, int64_t alignment, int device,
                          Placement* placement) {
  cudaPointerAttributes attributes{};
  COUNTERWEIGHT_CUDA_TRY(cudaPointerGetAttributes(&attributes, memory));
  if (attributes.type == cudaMemoryTypeUnregistered) {
    *placement = Placement::kPageable;
  } else if (attributes.type == cudaMemoryTypeDevice &&
             attributes.device == device &&
             reinterpret_cast<uintptr_t>(memory) %
                     static_cast<uintptr_t>(alignment) ==
                 0) {
    *placement = Placement::kHere;
  } else {
    *placement = Placement::kReachable;
  }
  return cudaSuccess;
}

bool IsOnDevice(const void* memory, int* device) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();  // clears the sticky error
    return false;
  }
  *device = attributes.device;
  return attributes.type == cudaMemoryTypeDevice;
}

}  // namespace counterweight::kernels
