// Dynamic shared memory of a block, and copies into it.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_SHARED_MEMORY_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_SHARED_MEMORY_CUH_

#include <cstring>

#include "kernels/math/host_device.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

#ifdef __CUDACC__
extern __shared__ double dynamic_shared_memory[];
#endif

// `offset` in bytes, a multiple of 8.
__device__ inline double* SharedMemory(int offset) {
  return dynamic_shared_memory + offset / static_cast<int>(sizeof(double));
}

// 8 bytes from device memory, both addresses multiples of 8. The word is there
// after wait_for_copies() of this thread, so that many are under way at once
// and none needs a register.
__device__ inline void copy_word_to_shared(char* to, const char* from) {
#ifdef __CUDA_ARCH__
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared),
               "l"(from)
               : "memory");
#else
  std::memcpy(to, from, sizeof(double));
#endif
}

__device__ inline void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_SHARED_MEMORY_CUH_
