#include "kernels/cuda/launch_walk.cuh"

namespace counterweight::kernels {

cudaError_t PrepareBoth(int shared_bytes) {
  return PrepareWalk<true, true>(shared_bytes);
}

cudaError_t LaunchBoth(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream) {
  return LaunchWalk<true, true>(plan, job, stream);
}

}  // namespace counterweight::kernels
