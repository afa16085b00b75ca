// The device memory of one run: all that it needs, or nothing.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DEVICE_MEMORY_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counterweight::kernels {

// Arrays are wanted first, so that their sum is known, and then allocated. Each
// is an allocation by itself, so that tools that check accesses see its ends.
class DeviceMemory {
 public:
  DeviceMemory() = default;
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

  // Of everything wanted, as the pool rounds it.
  int64_t bytes() const;

  // In the stream's order. After an error Free() is still due.
  cudaError_t Allocate(cudaStream_t stream);
  // In the stream's order; does nothing without Allocate().
  void Free(cudaStream_t stream);

 private:
  struct Array {
    void** pointer;
    size_t bytes;
  };
  std::vector<Array> arrays_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DEVICE_MEMORY_H_
