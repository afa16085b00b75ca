#include "kernels/cuda/launch_walk.cuh"

namespace counterweight::kernels {

cudaError_t PrepareOutputs(int shared_bytes) {
  return PrepareWalk<false, true>(shared_bytes);
}

cudaError_t LaunchOutputs(const Plan& plan, const DeviceJob& job,
                          cudaStream_t stream) {
  return LaunchWalk<false, true>(plan, job, stream);
}

}  // namespace counterweight::kernels
