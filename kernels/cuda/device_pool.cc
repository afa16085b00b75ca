#include "kernels/cuda/device_pool.h"

#include <cstddef>

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {

DevicePool::~DevicePool() {
  if (pool_ == nullptr) return;
  cudaMemPoolDestroy(pool_);
  cudaGetLastError();  // clears the sticky error
}

cudaError_t DevicePool::Create(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  COUNTERWEIGHT_CUDA_TRY(cudaMemPoolCreate(&pool_, &properties));
  uint64_t threshold = UINT64_MAX;
  return cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold,
                                 &threshold);
}

void DevicePool::TrimTo(int64_t bytes) {
  cudaMemPoolTrimTo(pool_, static_cast<size_t>(bytes));
  cudaGetLastError();  // a lost device shows in its runs
}

}  // namespace counterweight::kernels
