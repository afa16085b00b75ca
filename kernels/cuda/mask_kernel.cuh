// Counts a mask that the host cannot read.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_MASK_KERNEL_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_MASK_KERNEL_CUH_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch_mask.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

// Words that a lane reads at once.
constexpr int kAhead = 8;

// Counts bytes that are not 0, and finds the least position of one above 1.
struct MaskCount {
  uint32_t tokens = 0;
  uint64_t bad = kAllBoolean;

  __device__ void add(uint8_t value, int64_t position) {
    tokens += value != 0 ? 1u : 0u;
    if (value > 1 && bad == kAllBoolean) bad = static_cast<uint64_t>(position);
  }
  // The bytes of a word, the first in its low bits.
  __device__ void add_word(uint32_t word, int64_t position) {
    if ((word & 0xfefefefeu) == 0) {
      tokens += static_cast<uint32_t>(__popc(word));
      return;
    }
    for (int i = 0; i < kWord; ++i) {
      add(static_cast<uint8_t>(word >> 8 * i), position + i);
    }
  }

  static constexpr int kWord = static_cast<int>(sizeof(uint32_t));
};

// A warp for each segment. Integers, so the order of addition is free.
__global__ void mask_kernel(const __grid_constant__ MaskJob job) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t index = thread / kLanes;
  if (index >= job.num_segments) return;
  const int lane = static_cast<int>(thread % kLanes);
  const DeviceSegment segment = job.segments.at(index);
  constexpr int kWord = MaskCount::kWord;
  const auto address = reinterpret_cast<uintptr_t>(job.mask + segment.begin);
  // A mask may begin at any byte.
  const int64_t length = segment.end - segment.begin;
  const auto unaligned = static_cast<int64_t>((0 - address) % kWord);
  const int64_t head = unaligned < length ? unaligned : length;
  const int64_t words = (length - head) / kWord;
  const int64_t body = segment.begin + head;
  const int64_t tail = body + words * kWord;
  MaskCount count;
  if (lane < head) {
    count.add(job.mask[segment.begin + lane], segment.begin + lane);
  }
  const auto* const from = reinterpret_cast<const uint32_t*>(job.mask + body);
  for (int64_t i = lane; i < words; i += int64_t{kAhead} * kLanes) {
    // All loads are under way before the first word is looked at.
    uint32_t word[kAhead];
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const int64_t at = i + k * kLanes;
      word[k] = at < words ? from[at] : 0u;
    }
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      count.add_word(word[k], body + (i + k * kLanes) * kWord);
    }
  }
  if (tail + lane < segment.end) {
    count.add(job.mask[tail + lane], tail + lane);
  }
  if (count.bad != kAllBoolean) {
    atomicMin(reinterpret_cast<unsigned long long*>(job.first_bad),
              static_cast<unsigned long long>(count.bad));
  }
  uint32_t tokens = count.tokens;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    tokens += __shfl_xor_sync(0xffffffffu, tokens, half);
  }
  if (lane == 0 && tokens > 0) {
    atomicAdd(
        reinterpret_cast<unsigned long long*>(job.row_tokens + segment.row),
        static_cast<unsigned long long>(tokens));
  }
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_MASK_KERNEL_CUH_
