// Launches the device kernels of kernels/cuda on this CPU: in the queues of the
// fake runtime, and only on device memory. The including file includes one of
// kernels/cuda/launch_*.cu next, as nvcc includes cuda_runtime.h first.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_LAUNCH_ON_CPU_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_LAUNCH_ON_CPU_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/warp.h"
//
#include "kernels/cuda/column_layout.h"
#include "kernels/cuda/launch.h"
#include "kernels/walk/packed_records.h"
#include "kernels/walk/record_columns.h"
#include "kernels/walk/row_totals.h"

namespace counterweight::kernels {

using fake_cuda::IsDeviceMemory;

// A device cannot access a number at a misaligned address.
inline bool IsAligned(const void* memory, size_t size) {
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

inline bool MayTouchRecords(const char* records, int64_t count, int32_t bytes) {
  return records == nullptr || (IsAligned(records, alignof(double)) &&
                                MayTouch(records, 0, count * bytes));
}

inline bool MayTouchRows(const Plan& plan, const DeviceJob& job) {
  const int64_t rows = job.batch.num_sequences;
  return MayTouch(job.row_segments, 0, rows + 1) &&
         MayTouch(job.states, 0, rows) &&
         MayTouchRecords(job.rows, rows, row_offsets(plan).bytes) &&
         MayTouch(job.totals, 0, ColumnsOfRows(plan).totals) &&
         MayTouch(job.reasons, 0, rows) && MayTouch(job.row_tokens, 0, rows) &&
         MayTouch(job.outputs.sequence_reasons, 0, rows) &&
         MayTouch(job.loss.row_factors, 0, rows);
}

inline bool MayTouchSegments(const SegmentsView& view, int64_t count) {
  return MayTouch(view.segments, 0, count) &&
         (view.segments != nullptr || MayTouch(view.offsets, 0, count + 1));
}
inline bool MayTouchSegments(const Plan& plan, const DeviceJob& job) {
  return job.num_segments > 0 &&
         MayTouchSegments(job.segments, job.num_segments) &&
         MayTouchRecords(job.records, job.num_segments,
                         segment_offsets(plan).bytes) &&
         MayTouch(job.bases, 0, job.num_segments * plan.num_prefixes);
}

// REQUIRES: MayTouchSegments().
inline bool MayTouchTokens(const Plan& plan, const DeviceJob& job) {
  const int64_t begin = job.segments.at(0).begin;
  const int64_t end = job.segments.at(job.num_segments - 1).end;
  for (int r = 0; r < kNumTensors; ++r) {
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
inline bool MayTouchAll(const Plan& plan, const DeviceJob& job) {
  return MayTouchRows(plan, job) && MayTouchSegments(plan, job);
}
inline bool MayTouchAll(const Plan& plan, const DeviceJob& job,
                        const ColumnLayout& /*layout*/) {
  return MayTouchAll(plan, job) && MayTouchTokens(plan, job);
}
template <class Layout>
bool MayTouchAll(const Plan& plan, const DeviceJob& job,
                 const RecordColumns& /*columns*/, const Layout& /*layout*/) {
  return MayTouchAll(plan, job);
}
inline bool MayTouchAll(const uint32_t* reasons, int64_t count,
                        const uint16_t* out) {
  return MayTouch(reasons, 0, count) && MayTouch(out, 0, count);
}
inline bool MayTouchAll(const float* weights, int64_t count,
                        double /*divisor*/) {
  return MayTouch(weights, 0, count);
}

}  // namespace counterweight::kernels

// As cuda_runtime.h has it.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using counterweight::kernels::MayTouchAll;
  const std::tuple<std::decay_t<Parameters>...> given(arguments...);
  return counterweight::fake_cuda::Launch(
      reinterpret_cast<const void*>(kernel), *config,
      [kernel, given, launched = *config] {
        if (!std::apply([](const auto&... a) { return MayTouchAll(a...); },
                        given)) {
          return false;
        }
        std::vector<double> shared(launched.dynamicSmemBytes / sizeof(double));
        dynamic_shared_memory = shared.data();
        for (unsigned block = 0; block < launched.gridDim.x; ++block) {
          // Poison: a block that reads unwritten shared memory would otherwise
          // see the block before.
          std::memset(shared.data(), 0xa5, shared.size() * sizeof(double));
          counterweight::kernels::RunBlock(block, launched.blockDim.x,
                                           [&] { std::apply(kernel, given); });
        }
        return true;
      });
}

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_LAUNCH_ON_CPU_H_
