// A warp as 32 coroutines of one thread: each lane runs until it needs the
// others, as shuffles do, and continues when all have arrived.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_WARP_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_WARP_H_

#include <cstdint>
#include <cstring>
#include <functional>

struct Index3 {
  unsigned x;
};
// Index of the running lane.
extern thread_local Index3 threadIdx;
extern thread_local Index3 blockIdx;
extern thread_local Index3 blockDim;
// Shared memory of the running block.
extern thread_local double* dynamic_shared_memory;

namespace counterweight::kernels {

// Runs `kernel` as block `block` of `threads` threads, a multiple of 32.
void RunBlock(unsigned block, unsigned threads,
              const std::function<void()>& kernel);

// Returns when every lane has called it.
void SyncWarp();

// Ends the process unless `nothing` was added to a warp's scratch columns,
// which hold sums of columns without a place.
void ExpectNothing(bool nothing);

// Every lane passes its value and receives that of lane `from`.
uint64_t Exchange(uint64_t value, int from);

}  // namespace counterweight::kernels

template <class T>
T ShuffleFrom(T value, int lane) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = counterweight::kernels::Exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline int ThisLane() { return static_cast<int>(threadIdx.x % 32); }

inline void __syncwarp() { counterweight::kernels::SyncWarp(); }

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return ShuffleFrom(value, lane);
}
template <class T>
T __shfl_down_sync(unsigned, T value, int distance) {
  const int lane = ThisLane() + distance;
  return ShuffleFrom(value, lane < 32 ? lane : ThisLane());
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const int lane = ThisLane() - distance;
  return ShuffleFrom(value, lane >= 0 ? lane : ThisLane());
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ShuffleFrom(value, ThisLane() ^ mask);
}
inline uint32_t __reduce_or_sync(unsigned, uint32_t value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    value |= __shfl_xor_sync(0u, value, mask);
  }
  return value;
}
inline int __any_sync(unsigned, bool value) {
  return __reduce_or_sync(0u, value ? 1u : 0u) != 0 ? 1 : 0;
}
inline void atomicOr(uint32_t* target, uint32_t bits) { *target |= bits; }

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_WARP_H_
