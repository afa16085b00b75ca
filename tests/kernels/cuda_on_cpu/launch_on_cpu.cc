// Launches the device kernels of kernels/cuda on this CPU.
#include <cuda_runtime_api.h>

#include "tests/kernels/cuda_on_cpu/warp.h"
//
#include "kernels/cuda/device_kernels.cuh"

namespace counterweight::kernels {
namespace {

template <class Kernel>
cudaError_t Launch(unsigned blocks, Kernel kernel) {
  for (unsigned block = 0; block < blocks; ++block) {
    RunBlock(block, kThreads, kernel);
  }
  return cudaSuccess;
}

template <bool kStats, bool kOutput>
cudaError_t LaunchWalk(const Plan& plan, const DeviceJob& job) {
  return Launch(Blocks(job.num_segments, kWarps),
                [&] { walk_kernel<kStats, kOutput>(plan, job); });
}

}  // namespace

cudaError_t LaunchStatistics(const Plan& plan, const DeviceJob& job,
                             cudaStream_t) {
  return LaunchWalk<true, false>(plan, job);
}

cudaError_t LaunchBoth(const Plan& plan, const DeviceJob& job, cudaStream_t) {
  return LaunchWalk<true, true>(plan, job);
}

cudaError_t LaunchOutputs(const Plan& plan, const DeviceJob& job,
                          cudaStream_t) {
  return LaunchWalk<false, true>(plan, job);
}

cudaError_t LaunchInitialStates(const Plan& plan, const DeviceJob& job,
                                cudaStream_t) {
  return Launch(Blocks(job.batch.num_sequences, kThreads),
                [&] { initial_states_kernel(plan, job); });
}

cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t) {
  return Launch(Blocks(job.batch.num_sequences, kThreads),
                [&] { settle_loss_kernel(plan, job); });
}

cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job, cudaStream_t) {
  return Launch(Blocks(job.batch.num_sequences, kThreads),
                [&] { settle_kernel(plan, job); });
}

cudaError_t LaunchFoldRows(const Plan& plan, const DeviceJob& job,
                           cudaStream_t) {
  const int64_t count = job.batch.num_sequences;
  for (int64_t stride = 1; stride < count; stride *= 2) {
    const int64_t pairs = (count + 2 * stride - 1) / (2 * stride);
    Launch(Blocks(pairs, kThreads),
           [&] { fold_rows_kernel(plan, job.rows, count, stride); });
  }
  return cudaSuccess;
}

cudaError_t LaunchNarrow(const uint32_t* reasons, int64_t count, uint16_t* out,
                         cudaStream_t) {
  return Launch(Blocks(count, kThreads),
                [&] { narrow_kernel(reasons, count, out); });
}

cudaError_t LaunchDivide(float* weights, int64_t count, double divisor,
                         cudaStream_t) {
  return Launch(Blocks(count, kThreads),
                [&] { divide_kernel(weights, count, divisor); });
}

}  // namespace counterweight::kernels
