#include "kernels/cuda/launch_on_device.cuh"
#include "kernels/cuda/launch_walk.cuh"

namespace counterweight::kernels {

cudaError_t LaunchOutputs(const Plan& plan, const DeviceJob& job,
                          cudaStream_t stream) {
  return LaunchWalk<false, true>(plan, job, stream);
}

}  // namespace counterweight::kernels
