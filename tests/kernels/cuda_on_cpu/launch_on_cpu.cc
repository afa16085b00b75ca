// Launches the device kernels of kernels/cuda on this CPU: into the queues of
// the fake runtime, and only on memory that is a device's.
#include <cuda_runtime_api.h>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/warp.h"
//
#include "kernels/cuda/device_kernels.cuh"

namespace counterweight::kernels {
namespace {

using fake_cuda::IsDeviceMemory;

// [count] elements from `array`, or null.
template <class T>
bool MayTouch(const T* array, int64_t first, int64_t last) {
  return array == nullptr ||
         IsDeviceMemory(array + first,
                        static_cast<size_t>(last - first) * sizeof(T));
}

bool MayTouchRows(const DeviceJob& job) {
  const int64_t rows = job.batch.num_sequences;
  return MayTouch(job.row_segments, 0, rows + 1) &&
         MayTouch(job.states, 0, rows) && MayTouch(job.rows, 0, rows) &&
         MayTouch(job.reasons, 0, rows) && MayTouch(job.row_tokens, 0, rows) &&
         MayTouch(job.loss.row_factors, 0, rows);
}

bool MayTouchSegments(const Plan& plan, const DeviceJob& job) {
  return job.num_segments > 0 && MayTouch(job.segments, 0, job.num_segments) &&
         MayTouch(job.records, 0, job.num_segments) &&
         MayTouch(job.bases, 0, job.num_segments * plan.num_prefixes);
}

// REQUIRES: MayTouchSegments().
bool MayTouchTokens(const Plan& plan, const DeviceJob& job) {
  const int64_t begin = job.segments[0].begin;
  const int64_t end = job.segments[job.num_segments - 1].end;
  for (int r = 0; r < kNumInputRoles; ++r) {
    if ((plan.inputs >> r & 1u) == 0 || begin == end) continue;
    const TensorView& tensor = job.batch.tensors[r];
    const int64_t size = SizeOf(tensor.dtype);
    if (tensor.data == nullptr ||
        !MayTouch(static_cast<const char*>(tensor.data), begin * size,
                  end * size)) {
      return false;
    }
  }
  return MayTouch(job.batch.response_mask, begin, end) &&
         MayTouch(job.outputs.weights, begin, end) &&
         MayTouch(job.outputs.keep_mask, begin, end) &&
         MayTouch(job.outputs.token_reasons, begin, end) &&
         MayTouch(job.outputs.gradient, begin, end) &&
         MayTouch(job.loss.selected, begin, end) &&
         MayTouch(job.loss.selection_keys, begin, end);
}

template <class Kernel>
void Run(unsigned blocks, const Kernel& kernel) {
  for (unsigned block = 0; block < blocks; ++block) {
    RunBlock(block, kThreads, kernel);
  }
}

template <bool kStats, bool kOutput>
cudaError_t LaunchWalk(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream) {
  return fake_cuda::Launch(stream, [plan, job] {
    if (!MayTouchRows(job) || !MayTouchSegments(plan, job) ||
        !MayTouchTokens(plan, job)) {
      return false;
    }
    Run(Blocks(job.num_segments, kWarps),
        [&] { walk_kernel<kStats, kOutput>(plan, job); });
    return true;
  });
}

template <class Kernel>
cudaError_t LaunchOnRows(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream, Kernel kernel) {
  return fake_cuda::Launch(stream, [plan, job, kernel] {
    if (!MayTouchRows(job) || !MayTouchSegments(plan, job)) return false;
    Run(Blocks(job.batch.num_sequences, kThreads), [&] { kernel(plan, job); });
    return true;
  });
}

}  // namespace

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
  return LaunchOnRows(plan, job, stream, initial_states_kernel);
}

cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream) {
  return LaunchOnRows(plan, job, stream, settle_loss_kernel);
}

cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream) {
  return LaunchOnRows(plan, job, stream, settle_kernel);
}

cudaError_t LaunchFoldRows(const Plan& plan, const DeviceJob& job,
                           cudaStream_t stream) {
  return fake_cuda::Launch(stream, [plan, job] {
    const int64_t count = job.batch.num_sequences;
    if (!MayTouch(job.rows, 0, count)) return false;
    for (int64_t stride = 1; stride < count; stride *= 2) {
      const int64_t pairs = (count + 2 * stride - 1) / (2 * stride);
      Run(Blocks(pairs, kThreads),
          [&] { fold_rows_kernel(plan, job.rows, count, stride); });
    }
    return true;
  });
}

cudaError_t LaunchNarrow(const uint32_t* reasons, int64_t count, uint16_t* out,
                         cudaStream_t stream) {
  return fake_cuda::Launch(stream, [=] {
    if (!MayTouch(reasons, 0, count) || !MayTouch(out, 0, count)) return false;
    Run(Blocks(count, kThreads), [&] { narrow_kernel(reasons, count, out); });
    return true;
  });
}

cudaError_t LaunchDivide(float* weights, int64_t count, double divisor,
                         cudaStream_t stream) {
  return fake_cuda::Launch(stream, [=] {
    if (!MayTouch(weights, 0, count)) return false;
    Run(Blocks(count, kThreads),
        [&] { divide_kernel(weights, count, divisor); });
    return true;
  });
}

}  // namespace counterweight::kernels
