// Arrays in the memory of the fake device.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_COPIED_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_COPIED_H_

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace counterweight::kernels {

// Device memory with a copy of `host`.
template <class T>
class Copied {
 public:
  explicit Copied(const std::vector<T>& host) : host_(host) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, Bytes()), cudaSuccess);
    device_ = static_cast<T*>(memory);
    EXPECT_EQ(cudaMemcpy(device_, host.data(), Bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~Copied() { cudaFree(device_); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;

  T* device() const { return device_; }
  std::vector<T> Read() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(
        cudaMemcpy(host_.data(), device_, Bytes(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    return host_;
  }

 private:
  size_t Bytes() const { return host_.size() * sizeof(T); }

  std::vector<T> host_;
  T* device_ = nullptr;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_COPIED_H_
