#include <cuda_runtime_api.h>

#include "tests/gpu_check/memory.h"

namespace counterweight::kernels {
namespace {

class DeviceMemory final : public Memory {
 public:
  void* Allocate(size_t bytes) override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    cudaGetLastError();  // clears the sticky error
    return nullptr;
  }
  void Free(void* memory) override { cudaFree(memory); }
  // The default stream does not wait for others, nor they for it.
  bool Copy(void* to, const void* from, size_t bytes) override {
    return cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess &&
           cudaDeviceSynchronize() == cudaSuccess;
  }
};

}  // namespace

std::unique_ptr<Memory> MakeDeviceMemory() {
  return std::make_unique<DeviceMemory>();
}

}  // namespace counterweight::kernels
