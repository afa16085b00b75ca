// Launches the device kernels of kernels/cuda on this CPU.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/cuda_on_cpu/warp.h"
//
#include "kernels/cuda/grid.h"

namespace counterweight::kernels {
namespace {

template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t blocks, int shared,
                   cudaStream_t, const Arguments&... arguments) {
  std::vector<double> memory(static_cast<size_t>(shared) / sizeof(double));
  dynamic_shared_memory = memory.data();
  for (int64_t block = 0; block < blocks; ++block) {
    // Of the block before, if anybody reads what it has not written.
    std::memset(memory.data(), 0xa5, memory.size() * sizeof(double));
    RunBlock(static_cast<unsigned>(block), kThreads,
             [&] { kernel(arguments...); });
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace counterweight::kernels

#include "kernels/cuda/launch_rows.cuh"
#include "kernels/cuda/launch_walk.cuh"

namespace counterweight::kernels {

cudaError_t LaunchStatistics(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  return LaunchWalk<true, false>(plan, job, stream);
}

cudaError_t LaunchBoth(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream) {
  return LaunchWalk<true, true>(plan, job, stream);
}

cudaError_t LaunchOutputs(const Plan& plan, const DeviceJob& job,
                          cudaStream_t stream) {
  return LaunchWalk<false, true>(plan, job, stream);
}

}  // namespace counterweight::kernels
