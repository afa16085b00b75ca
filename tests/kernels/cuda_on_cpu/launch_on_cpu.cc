// Launches the device kernels of kernels/cuda on this CPU: in the queues of the
// fake runtime, and only on device memory.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/warp.h"
//
#include "kernels/cuda/column_layout.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"

namespace counterweight::kernels {
namespace {

using fake_cuda::IsDeviceMemory;

// A device cannot access a number at a misaligned address.
bool IsAligned(const void* memory, size_t size) {
  return reinterpret_cast<uintptr_t>(memory) % size == 0;
}

// Elements [first, last) of `array`, or null.
template <class T>
bool MayTouch(const T* array, int64_t first, int64_t last) {
  return array == nullptr ||
         (IsAligned(array, alignof(T)) &&
          IsDeviceMemory(array + first,
                         static_cast<size_t>(last - first) * sizeof(T)));
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
        !IsAligned(tensor.data, static_cast<size_t>(size)) ||
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

// Checks the arguments of each kind of kernel.
bool MayTouchAll(const Plan& plan, const DeviceJob& job) {
  return MayTouchRows(job) && MayTouchSegments(plan, job);
}
bool MayTouchAll(const Plan& plan, const DeviceJob& job,
                 const ColumnLayout& /*layout*/) {
  return MayTouchAll(plan, job) && MayTouchTokens(plan, job);
}
bool MayTouchAll(const Plan& /*plan*/, const RowRecord* rows, int64_t count,
                 int64_t /*stride*/) {
  return MayTouch(rows, 0, count);
}
bool MayTouchAll(const uint32_t* reasons, int64_t count, const uint16_t* out) {
  return MayTouch(reasons, 0, count) && MayTouch(out, 0, count);
}
bool MayTouchAll(const float* weights, int64_t count, double /*divisor*/) {
  return MayTouch(weights, 0, count);
}

template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t blocks, int shared,
                   cudaStream_t stream, const Arguments&... arguments) {
  return fake_cuda::Launch(stream, [=, given = std::tuple<Arguments...>(
                                           arguments...)] {
    if (!std::apply([](const auto&... a) { return MayTouchAll(a...); },
                    given)) {
      return false;
    }
    std::vector<double> memory(static_cast<size_t>(shared) / sizeof(double));
    dynamic_shared_memory = memory.data();
    for (int64_t block = 0; block < blocks; ++block) {
      // Poison: a block that reads unwritten shared memory would otherwise see
      // the block before.
      std::memset(memory.data(), 0xa5, memory.size() * sizeof(double));
      RunBlock(static_cast<unsigned>(block), kThreads,
               [&] { std::apply(kernel, given); });
    }
    return true;
  });
}

}  // namespace
}  // namespace counterweight::kernels

#include "kernels/cuda/launch_rows.cuh"
#include "kernels/cuda/launch_walk.cuh"

namespace counterweight::kernels {

cudaError_t CheckKernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, nullptr);
}

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
