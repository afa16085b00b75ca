#include "kernels/cuda/launch_walk.cuh"

namespace counterweight::kernels {

cudaError_t PrepareStatistics(int shared_bytes) {
  return PrepareWalk<true, false>(shared_bytes);
}

cudaError_t LaunchStatistics(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  return LaunchWalk<true, false>(plan, job, stream);
}

}  // namespace counterweight::kernels
