#include "kernels/cuda/device_memory.h"

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {

int64_t DeviceMemory::bytes() const {
  constexpr size_t kGranularity = 512;
  size_t sum = 0;
  for (const Array& array : arrays_) {
    sum += (array.bytes + kGranularity - 1) / kGranularity * kGranularity;
  }
  return static_cast<int64_t>(sum);
}

cudaError_t DeviceMemory::Allocate(cudaMemPool_t pool, cudaStream_t stream) {
  for (const Array& array : arrays_) {
    COUNTERWEIGHT_CUDA_TRY(
        cudaMallocFromPoolAsync(array.pointer, array.bytes, pool, stream));
  }
  return cudaSuccess;
}

void DeviceMemory::Free(cudaStream_t stream) {
  for (const Array& array : arrays_) {
    if (*array.pointer != nullptr) cudaFreeAsync(*array.pointer, stream);
    *array.pointer = nullptr;
  }
}

}  // namespace counterweight::kernels
