// The GPU's view of a tile: a warp, each thread one lane.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/batch.h"
#include "kernels/cuda/shapes.h"
#include "kernels/cuda/step_columns.cuh"
#include "kernels/cuda/warp_columns.cuh"
#include "kernels/math/bits.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Known when the walk is compiled.
template <int kCount>
struct FixedSteps {
  COUNTERWEIGHT_HD constexpr operator int() const { return kCount; }
  COUNTERWEIGHT_HD FixedSteps& operator=(int /*steps*/) { return *this; }
};

// A block, read before its first step is looked at.
struct BlockAhead {
  float mask[kSteps];
  float input[kNumInputRoles][kSteps];
};
struct NothingAhead {};

// A walk for plans of one shape looks at few steps at a time, so that a token's
// numbers stay in registers from its load to its store, and reads a block ahead
// of it. A walk for any plan has tiles as the CPU has, in local memory.
//
// kShapeIndex: of kShapes, or kAnyPlan. The same members as CpuLanes. Every
// thread of the warp takes every call.
template <int kShapeIndex, bool kStats, bool kOutput>
struct WarpLanes {
  static constexpr bool kFixed = kShapeIndex != kAnyPlan;
  static constexpr Shape kShape = kShapes[kFixed ? kShapeIndex : 0];
  static constexpr int kWidth = 1;
  static constexpr int kTileSteps = kFixed ? StepsTogether(kShape) : kSteps;
  static constexpr unsigned kAll = 0xffffffffu;
  using WarpTile = Tile<kWidth, kTileSteps>;
  using Steps = std::conditional_t<kFixed, FixedSteps<kTileSteps>, int>;
  using Columns =
      std::conditional_t<kFixed, StepColumns<kShapeIndex, kStats, kOutput>,
                         WarpColumns>;
  using Ahead = std::conditional_t<kFixed, BlockAhead, NothingAhead>;

  static constexpr COUNTERWEIGHT_HD RatioSource source(SourceUse use,
                                                       RatioSource of_plan) {
    if (!kFixed) return of_plan;
    const bool of_loss =
        use == SourceUse::kLoss || use == SourceUse::kLossMetrics;
    return of_loss ? kShape.loss : kShape.drift;
  }
  static constexpr COUNTERWEIGHT_HD bool may(Feature feature) {
    return !kFixed || (kShape.features & feature) != 0;
  }
  static constexpr COUNTERWEIGHT_HD bool must(Feature feature) {
    return kFixed && (kShape.always & feature) != 0;
  }
  // Every plan reads the drift's.
  static constexpr COUNTERWEIGHT_HD uint32_t sources(uint32_t of_plan) {
    if (!kFixed) return of_plan;
    const uint32_t loss = may(kFeatureLoss) ? bit(kShape.loss) : 0;
    const uint32_t kl = may(kFeatureKl) ? bit(RatioSource::kRefCurrent) : 0;
    return (of_plan & (loss | kl)) | bit(kShape.drift);
  }
  // Advantages are the loss's and conditional rules'.
  static constexpr COUNTERWEIGHT_HD uint32_t inputs(uint32_t of_plan) {
    if (!kFixed) return of_plan;
    const uint32_t of_loss =
        bit(InputRole::kCurrent) | bit(InputRole::kAdvantages);
    uint32_t inputs = inputs_of(sources(~0u));
    if (may(kFeatureLoss)) inputs |= of_loss;
    if (may(kFeatureConditions)) inputs |= bit(InputRole::kAdvantages);
    const uint32_t always =
        inputs_of(sources(0)) | (must(kFeatureLoss) ? of_loss : 0u);
    return (of_plan & inputs) | always;
  }

  // By value: what has two addresses is in no register.
  static __device__ WarpTile choose(bool first, const WarpTile& a,
                                    const WarpTile& b) {
    WarpTile chosen;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kTileSteps; ++k) {
      chosen.at[k][0] = first ? a.at[k][0] : b.at[k][0];
    }
    return chosen;
  }

  template <class F>
  static __device__ void for_each_rule(int rules, F f) {
    if constexpr (kFixed) {
      COUNTERWEIGHT_UNROLL
      for (int r = 0; r < kMaxShapeRules; ++r) {
        if (r < rules) f(r);
      }
    } else {
      for (int r = 0; r < rules; ++r) f(r);
    }
  }

  static __device__ int lane(int = 0) {
    return static_cast<int>(threadIdx.x) % kLanes;
  }
  static __device__ bool writes() { return lane() == 0; }
  static __device__ int steps(int) { return kTileSteps; }

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

  static __device__ void read_ahead(const Plan& plan, const Batch& batch,
                                    int64_t position, int count, Ahead& ahead) {
    if constexpr (kFixed) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        ahead.mask[k] = mask_at(batch.response_mask, position, k, count);
      }
      COUNTERWEIGHT_UNROLL
      for (int r = 0; r < kNumInputRoles; ++r) {
        if ((inputs(plan.inputs) >> r & 1u) == 0) continue;
        read<kSteps>(
            batch.tensors[r], position,
            [&](int k) { return ahead.mask[k] != 0.0f; }, ahead.input[r]);
      }
    }
  }

  static __device__ void load(const Batch& batch, int role, int part,
                              const Ahead& ahead, int64_t position, int count,
                              const WarpTile& mask, WarpTile& out) {
    if constexpr (kFixed) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < kTileSteps; ++k) {
        out.at[k][0] = ahead.input[role][part * kTileSteps + k];
      }
    } else {
      load(batch.tensors[role], position, count, mask, out);
    }
  }
  static __device__ void load_mask(const Batch& batch, int part,
                                   const Ahead& ahead, int64_t position,
                                   int count, WarpTile& out) {
    if constexpr (kFixed) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < kTileSteps; ++k) {
        out.at[k][0] = ahead.mask[part * kTileSteps + k];
      }
    } else {
      load_mask(batch.response_mask, position, count, out);
    }
  }

  // Beyond `count` the mask is 0.
  static __device__ void load(const TensorView& tensor, int64_t position,
                              int /*count*/, const WarpTile& mask,
                              WarpTile& out) {
    float values[kTileSteps] = {};
    read<kTileSteps>(
        tensor, position, [&](int k) { return mask.at[k][0] != 0.0f; }, values);
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kTileSteps; ++k) out.at[k][0] = values[k];
  }

  static __device__ void load_mask(const uint8_t* mask, int64_t position,
                                   int count, WarpTile& out) {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kTileSteps; ++k) {
      out.at[k][0] = mask_at(mask, position, k, count);
    }
  }

  template <class From, class To>
  static __device__ void store(const From& tile, int64_t position, int count,
                               To* out) {
    To* const own = out + position + lane();
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kTileSteps; ++k) {
      const bool inside = lane() < count - k * kLanes;
      if (inside) own[k * kLanes] = narrow<To>(tile.at[k][0]);
    }
  }

 private:
  static constexpr COUNTERWEIGHT_HD uint32_t inputs_of(uint32_t sources) {
    uint32_t inputs = 0;
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((sources >> r & 1u) == 0) continue;
      const auto source = static_cast<RatioSource>(r);
      inputs |= 1u << numerator(source) | 1u << denominator(source);
    }
    return inputs;
  }

  template <class E>
  static constexpr COUNTERWEIGHT_HD uint32_t bit(E of) {
    return 1u << static_cast<uint32_t>(of);
  }

  static __device__ float mask_at(const uint8_t* mask, int64_t position, int k,
                                  int count) {
    const uint8_t* const own = mask + position + lane();
    const bool inside = lane() < count - k * kLanes;
    return inside && own[k * kLanes] != 0 ? 1.0f : 0.0f;
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

  // out[k] = this lane's element of step k where reads(k), else 0. Device
  // buffers are aligned, whatever the caller's were.
  template <int kCount, class Reads>
  static __device__ void read(const TensorView& tensor, int64_t position,
                              Reads reads, float* out) {
    const int64_t own = position + lane();
    switch (tensor.dtype) {
      case DType::kF32:
        return read_as<kCount>(static_cast<const float*>(tensor.data) + own,
                               reads, out, [](float x) { return x; });
      case DType::kBF16:
        return read_as<kCount>(static_cast<const uint16_t*>(tensor.data) + own,
                               reads, out,
                               [](uint16_t x) { return from_bf16(x); });
      case DType::kF16:
        return read_as<kCount>(static_cast<const uint16_t*>(tensor.data) + own,
                               reads, out,
                               [](uint16_t x) { return from_f16(x); });
    }
  }
  template <int kCount, class T, class Reads, class F>
  static __device__ void read_as(const T* from, Reads reads, float* out,
                                 F widen) {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      out[k] = reads(k) ? widen(from[k * kLanes]) : 0.0f;
    }
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
