// The kind of memory, which decides how its bytes reach the device.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_PLACEMENT_H_
#define COUNTERWEIGHT_KERNELS_CUDA_PLACEMENT_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace counterweight::kernels {

enum class Placement : uint8_t {
  kHere,       // on the device: kernels take it where it is
  kReachable,  // pinned, or on a device: the device copies by itself
  kPageable,   // any other: goes through pinned memory
};

// Finds the placement of an array of this process, or opened by it. Kernels
// access one element at a time, so arrays on the device are taken where they
// are if they have `alignment`, an element's bytes.
cudaError_t FindPlacement(const void* memory, int64_t alignment, int device,
                          Placement* placement);

// False if it is host memory, or managed memory, which has no device.
bool IsOnDevice(const void* memory, int* device);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_PLACEMENT_H_
