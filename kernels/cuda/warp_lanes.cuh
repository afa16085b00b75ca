// The GPU's view of a tile: a warp, each thread one lane.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/math/bits.h"
#include "kernels/walk/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The same members as CpuLanes. Every thread of the warp takes every call.
struct WarpLanes {
  static constexpr int kWidth = 1;
  static constexpr unsigned kAll = 0xffffffffu;

  static __device__ int lane(int = 0) {
    return static_cast<int>(threadIdx.x) % kLanes;
  }
  static __device__ bool writes() { return lane() == 0; }
  static __device__ int steps(int) { return kSteps; }

  // The result is lane 0's: halving as on the CPU.
  static __device__ double fold_sum(LaneValues<1, double>& x) {
    double sum = x.at[0];
    for (int half = kLanes / 2; half > 0; half /= 2) {
      sum += __shfl_down_sync(kAll, sum, half);
    }
    return sum;
  }
  static __device__ float fold_min(LaneValues<1, float>& x) {
    float least = x.at[0];
    for (int half = kLanes / 2; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(kAll, least, half);
      least = other < least ? other : least;
    }
    return least;
  }
  static __device__ float fold_max(LaneValues<1, float>& x) {
    float most = x.at[0];
    for (int half = kLanes / 2; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(kAll, most, half);
      most = other > most ? other : most;
    }
    return most;
  }
  static __device__ int64_t fold_min(int64_t x) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      const int64_t other = __shfl_xor_sync(kAll, x, half);
      x = other < x ? other : x;
    }
    return x;
  }
  static __device__ uint32_t fold_or(const LaneValues<1, uint32_t>& x) {
    return __reduce_or_sync(kAll, x.at[0]);
  }
  static __device__ bool any(const LaneValues<1, float>& x) {
    return __any_sync(kAll, x.at[0] != 0.0f) != 0;
  }

  static __device__ void scan(LaneValues<1, double>& x) {
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const double before = __shfl_up_sync(kAll, x.at[0], distance);
      if (lane() >= distance) x.at[0] += before;
    }
  }
  static __device__ double last(const LaneValues<1, double>& x) {
    return __shfl_sync(kAll, x.at[0], kLanes - 1);
  }

  static __device__ void load(const TensorView& tensor, int64_t position,
                              int count, const Tile<1>& mask, Tile<1>& out) {
    for (int k = 0; k < kSteps; ++k) {
      const int i = k * kLanes + lane();
      const bool reads = i < count && mask.at[k][0] != 0.0f;
      out.at[k][0] = reads ? element(tensor, position + i) : 0.0f;
    }
  }

  static __device__ void load_mask(const uint8_t* mask, int64_t position,
                                   int count, Tile<1>& out) {
    for (int k = 0; k < kSteps; ++k) {
      const int i = k * kLanes + lane();
      out.at[k][0] = i < count && mask[position + i] != 0 ? 1.0f : 0.0f;
    }
  }

  template <class From, class To>
  static __device__ void store(const From& tile, int64_t position, int count,
                               To* out) {
    for (int k = 0; k < kSteps; ++k) {
      const int i = k * kLanes + lane();
      if (i < count) out[position + i] = static_cast<To>(tile.at[k][0]);
    }
  }

 private:
  // Device buffers are aligned, whatever the caller's were.
  static __device__ float element(const TensorView& tensor, int64_t i) {
    switch (tensor.dtype) {
      case DType::kF32:
        return static_cast<const float*>(tensor.data)[i];
      case DType::kBF16:
        return from_bf16(static_cast<const uint16_t*>(tensor.data)[i]);
      case DType::kF16:
        return from_f16(static_cast<const uint16_t*>(tensor.data)[i]);
    }
    return 0.0f;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
