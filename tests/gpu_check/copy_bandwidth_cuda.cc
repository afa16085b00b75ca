#include <cuda_runtime_api.h>

#include <algorithm>

#include "tests/gpu_check/copy_bandwidth.h"

namespace counterweight::kernels {

double CopyBandwidth(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* from = nullptr;
  void* to = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  double best = 0.0;
  if (cudaMalloc(&from, size) == cudaSuccess &&
      cudaMalloc(&to, size) == cudaSuccess &&
      cudaEventCreate(&start) == cudaSuccess &&
      cudaEventCreate(&stop) == cudaSuccess) {
    constexpr int kRepetitions = 10;
    for (int i = 0; i < kRepetitions; ++i) {
      cudaEventRecord(start);
      cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice);
      cudaEventRecord(stop);
      float milliseconds = 0.0f;
      if (cudaEventSynchronize(stop) != cudaSuccess ||
          cudaEventElapsedTime(&milliseconds, start, stop) != cudaSuccess) {
        break;
      }
      best = std::max(best, 2.0 * static_cast<double>(bytes) /
                                (static_cast<double>(milliseconds) * 1e-3));
    }
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  cudaFree(from);
  cudaFree(to);
  return best;
}

}  // namespace counterweight::kernels
