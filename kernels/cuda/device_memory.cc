#include "kernels/cuda/device_memory.h"

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {
namespace {

// The pool's granularity, and more than any array's alignment.
size_t Rounded(size_t bytes) {
  constexpr size_t kGranularity = 512;
  return (bytes + kGranularity - 1) / kGranularity * kGranularity;
}

}  // namespace

int64_t DeviceMemory::bytes() const {
  size_t sum = 0;
  for (const Array& array : arrays_) sum += Rounded(array.bytes);
  return static_cast<int64_t>(sum);
}

cudaError_t DeviceMemory::AllocateEach(cudaMemPool_t pool,
                                       cudaStream_t stream) {
  for (const Array& array : arrays_) {
    COUNTERWEIGHT_CUDA_TRY(
        cudaMallocFromPoolAsync(array.pointer, array.bytes, pool, stream));
  }
  return cudaSuccess;
}

cudaError_t DeviceMemory::Allocate(cudaMemPool_t pool, cudaStream_t stream) {
  if (separate_ || arrays_.empty()) return AllocateEach(pool, stream);
  void* arena = nullptr;
  COUNTERWEIGHT_CUDA_TRY(cudaMallocFromPoolAsync(
      &arena, static_cast<size_t>(bytes()), pool, stream));
  arena_ = static_cast<char*>(arena);
  char* next = arena_;
  for (const Array& array : arrays_) {
    *array.pointer = next;
    next += Rounded(array.bytes);
  }
  return cudaSuccess;
}

void DeviceMemory::Free(cudaStream_t stream) {
  for (const Array& array : arrays_) {
    if (separate_ && *array.pointer != nullptr) {
      cudaFreeAsync(*array.pointer, stream);
    }
    *array.pointer = nullptr;
  }
  if (arena_ != nullptr) cudaFreeAsync(arena_, stream);
  arena_ = nullptr;
}

}  // namespace counterweight::kernels
