// Device memory with an owner.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DEVICE_BUFFER_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DEVICE_BUFFER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace counterweight::kernels {

// [size] elements of T, allocated and freed in the order of one stream. Move
// only; empty until Allocate() succeeds.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }

  // REQUIRES: empty. The stream outlives the buffer.
  cudaError_t Allocate(int64_t size, cudaStream_t stream) {
    stream_ = stream;
    size_ = size;
    if (size == 0) return cudaSuccess;
    return cudaMallocAsync(reinterpret_cast<void**>(&data_), bytes(), stream);
  }

  cudaError_t Upload(const void* from) {
    if (size_ == 0) return cudaSuccess;
    return cudaMemcpyAsync(data_, from, bytes(), cudaMemcpyHostToDevice,
                           stream_);
  }

  cudaError_t Download(void* to) const {
    if (size_ == 0) return cudaSuccess;
    return cudaMemcpyAsync(to, data_, bytes(), cudaMemcpyDeviceToHost, stream_);
  }

  cudaError_t Clear() {
    if (size_ == 0) return cudaSuccess;
    return cudaMemsetAsync(data_, 0, bytes(), stream_);
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }

  T* data_ = nullptr;
  int64_t size_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DEVICE_BUFFER_H_
