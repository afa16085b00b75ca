// Chooses the walk that was compiled for a plan's shape. The including file has
// defined Launch().
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_WALK_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_WALK_CUH_

#include <utility>

#include "kernels/cuda/column_layout.h"
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
cudaError_t LaunchWalk(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream) {
  const ColumnLayout layout = MakeColumnLayout(plan, kStats, kOutput);
  const WalkKernel kernel =
      KernelOf<kStats, kOutput>(ShapeOf(plan, job.outputs),
                                std::make_integer_sequence<int, kNumShapes>());
  return Launch(kernel, Blocks(job.num_segments, kWarps), layout.bytes * kWarps,
                stream, plan, job, layout);
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_WALK_CUH_
