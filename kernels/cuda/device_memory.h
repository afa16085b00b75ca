// The device memory of one run, allocated as a whole or not at all.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DEVICE_MEMORY_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counterweight::kernels {

// Arrays are requested first, so that their sum is known, and then allocated at
// once, or one by one if `separate`, so that memory checkers see their ends.
class DeviceMemory {
 public:
  explicit DeviceMemory(bool separate) : separate_(separate) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // *array points to `count` elements after Allocate(), to none if count is 0.
  template <class T>
  void Want(T** array, int64_t count) {
    *array = nullptr;
    if (count == 0) return;
    arrays_.push_back({reinterpret_cast<void**>(array),
                       static_cast<size_t>(count) * sizeof(T)});
  }

  // Total of the requested arrays, rounded as the pool rounds it.
  int64_t bytes() const;

  // Allocates in the stream's order. Free() must be called after an error too.
  cudaError_t Allocate(cudaMemPool_t pool, cudaStream_t stream);
  // Frees in the stream's order; does nothing without Allocate().
  void Free(cudaStream_t stream);

 private:
  struct Array {
    void** pointer;
    size_t bytes;
  };

  cudaError_t AllocateEach(cudaMemPool_t pool, cudaStream_t stream);

  const bool separate_;
  std::vector<Array> arrays_;
  char* arena_ = nullptr;  // of all arrays
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DEVICE_MEMORY_H_
