#include "kernels/cuda/device_kernels.cuh"
#include "kernels/cuda/launch.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

template <bool kStats, bool kOutput>
cudaError_t LaunchWalk(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream) {
  walk_kernel<kStats, kOutput>
      <<<Blocks(job.num_segments, kWarps), kThreads, 0, stream>>>(plan, job);
  return cudaGetLastError();
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA

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

cudaError_t LaunchInitialStates(const Plan& plan, const DeviceJob& job,
                                cudaStream_t stream) {
  initial_states_kernel<<<Blocks(job.batch.num_sequences, kThreads), kThreads,
                          0, stream>>>(plan, job);
  return cudaGetLastError();
}

cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  settle_loss_kernel<<<Blocks(job.batch.num_sequences, kThreads), kThreads, 0,
                       stream>>>(plan, job);
  return cudaGetLastError();
}

cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream) {
  settle_kernel<<<Blocks(job.batch.num_sequences, kThreads), kThreads, 0,
                  stream>>>(plan, job);
  return cudaGetLastError();
}

cudaError_t LaunchFoldRows(const Plan& plan, const DeviceJob& job,
                           cudaStream_t stream) {
  const int64_t count = job.batch.num_sequences;
  for (int64_t stride = 1; stride < count; stride *= 2) {
    const int64_t pairs = (count + 2 * stride - 1) / (2 * stride);
    fold_rows_kernel<<<Blocks(pairs, kThreads), kThreads, 0, stream>>>(
        plan, job.rows, count, stride);
  }
  return cudaGetLastError();
}

cudaError_t LaunchNarrow(const uint32_t* reasons, int64_t count, uint16_t* out,
                         cudaStream_t stream) {
  narrow_kernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(reasons,
                                                                  count, out);
  return cudaGetLastError();
}

cudaError_t LaunchDivide(float* weights, int64_t count, double divisor,
                         cudaStream_t stream) {
  divide_kernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(
      weights, count, divisor);
  return cudaGetLastError();
}

}  // namespace counterweight::kernels
