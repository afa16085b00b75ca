// Device memory that the runs of a backend reuse.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DEVICE_POOL_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DEVICE_POOL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace counterweight::kernels {

// A pool of its own: the device's default one is the process's, and a trainer
// in it may have its own idea of how much to keep. Thread-safe.
class DevicePool {
 public:
  DevicePool() = default;
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Makes a pool that keeps what is freed until TrimTo. Called once.
  cudaError_t Create(int device);
  cudaMemPool_t get() const { return pool_; }

  // Gives unused memory back to the device until `bytes` or fewer are left.
  void TrimTo(int64_t bytes);

 private:
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DEVICE_POOL_H_
