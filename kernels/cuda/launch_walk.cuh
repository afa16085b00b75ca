// Chooses the walk that was compiled for a plan's shape.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_WALK_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_WALK_CUH_

#include <algorithm>
#include <utility>

#include "kernels/cuda/column_layout.h"
#include "kernels/cuda/launch_on_device.cuh"
#include "kernels/cuda/shapes.h"
#include "kernels/cuda/walk_kernel.cuh"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

using WalkKernel = void (*)(Plan, DeviceJob, ColumnLayout);

template <bool kStats, bool kOutput, int... kIndex>
WalkKernel KernelOf(int shape, std::integer_sequence<int, kIndex...>) {
  constexpr WalkKernel kKernels[] = {walk_kernel<kStats, kOutput, kIndex>...};
  return shape < 0 ? walk_kernel<kStats, kOutput, kAnyPlan> : kKernels[shape];
}

template <bool kStats, bool kOutput>
WalkKernel KernelOf(int shape) {
  return KernelOf<kStats, kOutput>(
      shape, std::make_integer_sequence<int, kNumShapes>());
}

template <bool kStats, bool kOutput>
cudaError_t PrepareWalk(int shared_bytes) {
  static_assert(kAnyPlan == -1);
  for (int shape = kAnyPlan; shape < kNumShapes; ++shape) {
    COUNTERWEIGHT_CUDA_TRY(
        Prepare(KernelOf<kStats, kOutput>(shape), shared_bytes));
  }
  return cudaSuccess;
}

// Blocks of plans with so many columns that the device has no room for
// kWarps of them have fewer warps.
template <bool kStats, bool kOutput>
cudaError_t LaunchWalk(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream) {
  const ColumnLayout layout = MakeColumnLayout(plan, kStats, kOutput);
  const int warps = std::min(kWarps, job.shared_bytes / layout.bytes);
  if (warps == 0) return cudaErrorInvalidConfiguration;
  return Launch(KernelOf<kStats, kOutput>(ShapeOf(plan, job.outputs)),
                Blocks(job.num_segments, warps), warps * kLanes,
                warps * layout.bytes, stream, plan, job, layout);
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_WALK_CUH_
