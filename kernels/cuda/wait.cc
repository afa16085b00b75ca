#include "kernels/cuda/wait.h"

#include <chrono>

namespace counterweight::kernels {

cudaError_t WaitFor(cudaEvent_t event) {
  constexpr std::chrono::microseconds kAwake(100);
  const auto asleep = std::chrono::steady_clock::now() + kAwake;
  while (std::chrono::steady_clock::now() < asleep) {
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) return status;
    cudaGetLastError();  // clears the sticky error
  }
  return cudaEventSynchronize(event);
}

}  // namespace counterweight::kernels
