#include "kernels/cuda/placement.h"

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {

cudaError_t FindPlacement(const void* memory, int device,
                          Placement* placement) {
  // Kernels read tensors as if they had allocated them.
  constexpr uintptr_t kAlignment = 16;
  cudaPointerAttributes attributes{};
  COUNTERWEIGHT_CUDA_TRY(cudaPointerGetAttributes(&attributes, memory));
  if (attributes.type == cudaMemoryTypeUnregistered) {
    *placement = Placement::kPageable;
  } else if (attributes.type == cudaMemoryTypeDevice &&
             attributes.device == device &&
             reinterpret_cast<uintptr_t>(memory) % kAlignment == 0) {
    *placement = Placement::kHere;
  } else {
    *placement = Placement::kReachable;
  }
  return cudaSuccess;
}

}  // namespace counterweight::kernels
