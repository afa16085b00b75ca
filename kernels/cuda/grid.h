// How threads are numbered.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_GRID_H_
#define COUNTERWEIGHT_KERNELS_CUDA_GRID_H_

#include <cstdint>

#include "kernels/tile/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Threads of a block, at most.
inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / kLanes;

constexpr int64_t Blocks(int64_t items, int64_t per_block) {
  return (items + per_block - 1) / per_block;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_GRID_H_
