// Launchers of all kernels but the walk.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_

#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_on_device.cuh"
#include "kernels/cuda/row_kernels.cuh"

namespace counterweight::kernels {

cudaError_t PrepareRows() {
  COUNTERWEIGHT_CUDA_TRY(Prepare(initial_states_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(settle_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(settle_loss_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(fold_rows_kernel, 0));
  COUNTERWEIGHT_CUDA_TRY(Prepare(narrow_kernel, 0));
  return Prepare(divide_kernel, 0);
}

cudaError_t LaunchInitialStates(const Plan& plan, const DeviceJob& job,
                                cudaStream_t stream) {
  return Launch(initial_states_kernel,
                Blocks(job.batch.num_sequences, kThreads), kThreads, 0, stream,
                plan, job);
}

cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream) {
  return Launch(settle_kernel, Blocks(job.batch.num_sequences, kThreads),
                kThreads, 0, stream, plan, job);
}

cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  return Launch(settle_loss_kernel, Blocks(job.batch.num_sequences, kThreads),
                kThreads, 0, stream, plan, job);
}

cudaError_t LaunchFoldRows(const Plan& plan, const DeviceJob& job,
                           cudaStream_t stream) {
  const int64_t count = job.batch.num_sequences;
  for (int64_t stride = 1; stride < count; stride *= 2) {
    const int64_t pairs = Blocks(count, 2 * stride);
    const cudaError_t error =
        Launch(fold_rows_kernel, Blocks(pairs, kThreads), kThreads, 0, stream,
               plan, job.rows, count, stride);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchNarrow(const uint32_t* reasons, int64_t count, uint16_t* out,
                         cudaStream_t stream) {
  return Launch(narrow_kernel, Blocks(count, kThreads), kThreads, 0, stream,
                reasons, count, out);
}

cudaError_t LaunchDivide(float* weights, int64_t count, double divisor,
                         cudaStream_t stream) {
  return Launch(divide_kernel, Blocks(count, kThreads), kThreads, 0, stream,
                weights, count, divisor);
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_ROWS_CUH_
