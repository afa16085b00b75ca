// The GPU's view of a tile: a warp, each thread one lane.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/cuda/shapes.h"
#include "kernels/cuda/warp_columns.cuh"
#include "kernels/math/bits.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Every step, known when the walk is compiled.
struct AllSteps {
  COUNTERWEIGHT_HD constexpr operator int() const { return kSteps; }
  COUNTERWEIGHT_HD AllSteps& operator=(int /*steps*/) { return *this; }
};
struct AnySteps {
  int steps;
  COUNTERWEIGHT_HD operator int() const { return steps; }
  COUNTERWEIGHT_HD AnySteps& operator=(int to) {
    steps = to;
    return *this;
  }
};

template <bool fixed>
struct StepsOf {
  using Type = AllSteps;
};
template <>
struct StepsOf<false> {
  using Type = AnySteps;
};

// The same members as CpuLanes. Every thread of the warp takes every call.
// kShapeIndex: of kShapes, or kAnyPlan.
template <int kShapeIndex>
struct WarpLanes {
  static constexpr bool kFixed = kShapeIndex != kAnyPlan;
  static constexpr Shape kShape = kShapes[kFixed ? kShapeIndex : 0];
  static constexpr int kWidth = 1;
  static constexpr unsigned kAll = 0xffffffffu;
  using Steps = typename StepsOf<kFixed>::Type;
  using Columns = WarpColumns;

  static constexpr COUNTERWEIGHT_HD RatioSource source(SourceUse use,
                                                       RatioSource of_plan) {
    if (!kFixed) return of_plan;
    if (use == SourceUse::kDrift) return kShape.drift;
    return use == SourceUse::kCorrection ? kShape.correction : kShape.loss;
  }
  static constexpr COUNTERWEIGHT_HD bool may(Feature feature) {
    return !kFixed || (kShape.features & feature) != 0;
  }
  static constexpr COUNTERWEIGHT_HD uint32_t sources(uint32_t of_plan) {
    if (!kFixed) return of_plan;
    const uint32_t loss = may(kFeatureLoss) ? bit(kShape.loss) : 0;
    const uint32_t kl = may(kFeatureKl) ? bit(RatioSource::kRefCurrent) : 0;
    return of_plan & (bit(kShape.drift) | bit(kShape.correction) | loss | kl);
  }
  // Advantages are the loss's and conditional rules'.
  static constexpr COUNTERWEIGHT_HD uint32_t inputs(uint32_t of_plan) {
    if (!kFixed) return of_plan;
    uint32_t inputs = 0;
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((sources(~0u) >> r & 1u) == 0) continue;
      const auto source = static_cast<RatioSource>(r);
      inputs |= 1u << numerator(source) | 1u << denominator(source);
    }
    if (may(kFeatureLoss)) inputs |= bit(InputRole::kCurrent);
    if (may(kFeatureLoss) || may(kFeatureRules)) {
      inputs |= bit(InputRole::kAdvantages);
    }
    return of_plan & inputs;
  }

  // By value: what has two addresses is in no register.
  static __device__ Tile<1> choose(bool first, const Tile<1>& a,
                                   const Tile<1>& b) {
    Tile<1> chosen;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      chosen.at[k][0] = first ? a.at[k][0] : b.at[k][0];
    }
    return chosen;
  }

  static __device__ int lane(int = 0) {
    return static_cast<int>(threadIdx.x) % kLanes;
  }
  static __device__ bool writes() { return lane() == 0; }
  static __device__ int steps(int) { return kSteps; }

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

  // Beyond `count` the mask is 0. Device buffers are aligned, whatever the
  // caller's were.
  static __device__ void load(const TensorView& tensor, int64_t position,
                              int /*count*/, const Tile<1>& mask,
                              Tile<1>& out) {
    switch (tensor.dtype) {
      case DType::kF32:
        return load_as(static_cast<const float*>(tensor.data) + position, mask,
                       out, [](float x) { return x; });
      case DType::kBF16:
        return load_as(static_cast<const uint16_t*>(tensor.data) + position,
                       mask, out, [](uint16_t x) { return from_bf16(x); });
      case DType::kF16:
        return load_as(static_cast<const uint16_t*>(tensor.data) + position,
                       mask, out, [](uint16_t x) { return from_f16(x); });
    }
  }

  static __device__ void load_mask(const uint8_t* mask, int64_t position,
                                   int count, Tile<1>& out) {
    const uint8_t* const own = mask + position + lane();
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      const bool inside = lane() < count - k * kLanes;
      out.at[k][0] = inside && own[k * kLanes] != 0 ? 1.0f : 0.0f;
    }
  }

  template <class From, class To>
  static __device__ void store(const From& tile, int64_t position, int count,
                               To* out) {
    To* const own = out + position + lane();
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      const bool inside = lane() < count - k * kLanes;
      if (inside) own[k * kLanes] = narrow<To>(tile.at[k][0]);
    }
  }

 private:
  template <class E>
  static constexpr COUNTERWEIGHT_HD uint32_t bit(E of) {
    return 1u << static_cast<uint32_t>(of);
  }

  // Masks are 0 or 1; a comparison costs less than a conversion.
  template <class To>
  static __device__ To narrow(float x) {
    if constexpr (sizeof(To) == sizeof(float)) return x;
    return x != 0.0f ? To{1} : To{0};
  }
  template <class To>
  static __device__ To narrow(uint32_t x) {
    return static_cast<To>(x);
  }

  template <class T, class F>
  static __device__ void load_as(const T* from, const Tile<1>& mask,
                                 Tile<1>& out, F widen) {
    const T* const own = from + lane();
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      const bool reads = mask.at[k][0] != 0.0f;
      out.at[k][0] = reads ? widen(own[k * kLanes]) : 0.0f;
    }
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
