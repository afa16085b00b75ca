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
#include "kernels/tile/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// A step count that is known at compile time.
template <int kCount>
struct FixedSteps {
  COUNTERWEIGHT_HD constexpr operator int() const { return kCount; }
  COUNTERWEIGHT_HD FixedSteps& operator=(int /*steps*/) { return *this; }
};

// A block, read before its first step is looked at: this thread's lane.
struct BlockAhead {
  int64_t own;       // position of this lane's first element, in the batch
  int left;          // positions of the block from there on
  uint32_t dropped;  // bit k: step k was non-finite and is taken out
  uint32_t next;     // bit k: the mask of step k of the block after this one
  Tile<1, kSteps> mask;
  Tile<1, kSteps> input[kNumTensors];

  __device__ void drop(int k, int i) {
    mask.at[k][i] = 0.0f;
    dropped |= 1u << k;
  }
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
  static_assert(kSteps % kTileSteps == 0);
  static constexpr unsigned kAll = 0xffffffffu;
  using WarpTile = Tile<kWidth, kTileSteps>;
  using Steps = std::conditional_t<kFixed, FixedSteps<kTileSteps>, int>;
  using Columns =
      std::conditional_t<kFixed, StepColumns<kShapeIndex, kStats, kOutput>,
                         WarpColumns>;
  static constexpr bool kReadsAhead = kFixed;
  static constexpr int kLineBytes = 128;  // of a cache
  using Ahead = std::conditional_t<kFixed, BlockAhead, NothingAhead>;

  static constexpr COUNTERWEIGHT_HD RatioSource source(SourceUse use,
                                                       RatioSource of_plan) {
    if (!kFixed) return of_plan;
    const bool of_loss =
        use == SourceUse::kLoss || use == SourceUse::kLossMetrics;
    return of_loss ? kShape.loss : kShape.drift;
  }
  static constexpr COUNTERWEIGHT_HD bool may(Needs some) {
    return !kFixed || (kShape.needs & some) != 0;
  }
  static constexpr COUNTERWEIGHT_HD bool must(Needs some) {
    return kFixed && (kShape.always & some) != 0;
  }
  // Every plan reads the drift's.
  static constexpr COUNTERWEIGHT_HD uint32_t sources(uint32_t of_plan) {
    if (!kFixed) return of_plan;
    const uint32_t loss = may(kNeedLoss) ? bit(kShape.loss) : 0;
    const uint32_t kl = may(kNeedKl) ? bit(RatioSource::kRefCurrent) : 0;
    return (of_plan & (loss | kl)) | bit(kShape.drift);
  }
  // Advantages are the loss's and conditional rules'.
  static constexpr COUNTERWEIGHT_HD uint32_t inputs(uint32_t of_plan) {
    if (!kFixed) return of_plan;
    const uint32_t of_loss =
        bit(InputRole::kCurrent) | bit(InputRole::kAdvantages);
    uint32_t inputs = inputs_of(sources(~0u));
    if (may(kNeedLoss)) inputs |= of_loss;
    if (may(kNeedConditions)) inputs |= bit(InputRole::kAdvantages);
    const uint32_t always =
        inputs_of(sources(0)) | (must(kNeedLoss) ? of_loss : 0u);
    return (of_plan & inputs) | always;
  }

  // By value: a variable with two addresses cannot stay in a register.
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
        if (r >= rules) return;
        f(r);
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
  // The same of the tile's step, which is 0 or 1.
  static __device__ void scan_counts(const WarpTile& seen, int step,
                                     LaneValues<1, double>& count) {
    count.at[0] = static_cast<double>(seen.at[step][0]);
    scan(count);
  }
  static __device__ double last(const LaneValues<1, double>& x) {
    return __shfl_sync(kAll, x.at[0], kLanes - 1);
  }

  // Before the first block of a segment, [position, end) of the batch.
  static __device__ void read_first(const Batch& batch, int64_t position,
                                    int64_t end, Ahead& ahead) {
    uint8_t mask[kSteps];
    read_bytes(batch.response_mask, position, end, mask);
    ahead.next = packed(mask);
  }

  static __device__ void read_ahead(const Plan& plan, const Batch& batch,
                                    int64_t position, int64_t end,
                                    Ahead& ahead) {
    ahead.own = position + lane();
    ahead.left = left_of(position, end) - lane();
    ahead.dropped = 0;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      ahead.mask.at[k][0] = (ahead.next >> k & 1u) != 0 ? 1.0f : 0.0f;
    }
    // Widening a number waits for it, so all loads are first, those of the next
    // block's mask too: the block takes one latency of memory, whatever the
    // dtypes are.
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumTensors; ++r) {
      if ((inputs(plan.inputs) >> r & 1u) == 0) continue;
      read_words(batch.tensors[r], ahead.own, ahead.mask, ahead.input[r]);
    }
    uint8_t mask[kSteps];
    read_bytes(batch.response_mask, position + kTilePositions, end, mask);
    fetch_ahead(plan, batch, position + kTilePositions, end);
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumTensors; ++r) {
      if ((inputs(plan.inputs) >> r & 1u) == 0) continue;
      widen_words(batch.tensors[r].dtype, ahead.input[r]);
    }
    ahead.next = packed(mask);
  }

  // The tile's part of what was read ahead.
  template <class State>
  static __device__ void take(const Plan& plan, State& s) {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kTileSteps; ++k) {
      const int ahead = s.part * kTileSteps + k;
      s.mask.at[k][0] = s.ahead.mask.at[ahead][0];
      COUNTERWEIGHT_UNROLL
      for (int r = 0; r < kNumTensors; ++r) {
        if ((inputs(plan.inputs) >> r & 1u) == 0) continue;
        s.input[r].at[k][0] = s.ahead.input[r].at[ahead][0];
      }
    }
  }

  template <class State>
  static __device__ uint32_t reasons_ahead(const State& s, int step) {
    if constexpr (kFixed) {
      const uint32_t dropped = s.ahead.dropped >> (s.part * kTileSteps + step);
      return (dropped & 1u) != 0 ? kReasonNonFinite : 0u;
    } else {
      return 0;
    }
  }

  // Beyond `count` the mask is 0.
  static __device__ void load(const TensorView& tensor, int64_t position,
                              int /*count*/, const WarpTile& mask,
                              WarpTile& out) {
    read(tensor, position + lane(), mask, out);
  }
  static __device__ void load_mask(const uint8_t* mask, int64_t position,
                                   int count, WarpTile& out) {
    read_mask(mask, position + lane(), count - lane(), out);
  }

  // Writes the tile's positions into `out` of the batch; does nothing where it
  // is null.
  template <class From, class State, class To>
  static __device__ void store(const From& tile, const State& s, To* out) {
    if (out == nullptr) return;
    if constexpr (kFixed) {
      write<kTileSteps>(tile, s.part * kTileSteps, s.ahead.left,
                        out + s.ahead.own);
    } else {
      write<kTileSteps>(tile, 0, s.count - lane(), out + s.position + lane());
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

  // Brings the words of the block at `position` of a segment, and the mask of
  // the one after it, into the second cache while this thread computes the
  // block before: a wait for that cache is a third of one for memory, and takes
  // no registers.
  static __device__ void fetch_ahead(const Plan& plan, const Batch& batch,
                                     int64_t position, int64_t end) {
    if (position >= end) return;
    // Lanes of a tensor; of two bytes an element, two fetch the same line.
    constexpr int kElements = kLineBytes / static_cast<int>(sizeof(float));
    constexpr int kFetching = kTilePositions / kElements;
    const int64_t own = position + lane() * kElements;
    if (lane() < kFetching && own < end) {
      COUNTERWEIGHT_UNROLL
      for (int r = 0; r < kNumTensors; ++r) {
        if ((inputs(plan.inputs) >> r & 1u) == 0) continue;
        const TensorView& tensor = batch.tensors[r];
        const int64_t size = tensor.dtype == DType::kF32 ? 4 : 2;
        fetch(static_cast<const char*>(tensor.data) + own * size);
      }
    }
    const int64_t mask = position + kTilePositions + lane() * kLineBytes;
    if (lane() < kTilePositions / kLineBytes && mask < end) {
      fetch(batch.response_mask + mask);
    }
  }
  static __device__ void fetch([[maybe_unused]] const void* address) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
  }

  // Positions of the block at `position` of a segment; 0 or less behind its
  // end.
  static __device__ int left_of(int64_t position, int64_t end) {
    const int64_t left = end - position;
    return static_cast<int>(left < kTilePositions ? left : kTilePositions);
  }
  // This lane's bytes of the mask's block at `position`; 0 from `end` on.
  static __device__ void read_bytes(const uint8_t* mask, int64_t position,
                                    int64_t end, uint8_t (&out)[kSteps]) {
    const int left = left_of(position, end) - lane();
    const uint8_t* const own = mask + position + lane();
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      out[k] = k * kLanes < left ? own[k * kLanes] : uint8_t{0};
    }
  }
  static __device__ uint32_t packed(const uint8_t (&mask)[kSteps]) {
    uint32_t bits = 0;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      bits |= static_cast<uint32_t>(mask[k] != 0) << k;
    }
    return bits;
  }

  // left: positions from this lane's first on.
  template <int kCount>
  static __device__ void read_mask(const uint8_t* mask, int64_t own, int left,
                                   Tile<1, kCount>& out) {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const bool set = k * kLanes < left && mask[own + k * kLanes] != 0;
      out.at[k][0] = set ? 1.0f : 0.0f;
    }
  }

  template <int kCount, class From, class To>
  static __device__ void write(const From& tile, int first, int left, To* own) {
#ifdef __CUDA_ARCH__
    // Prevents the compiler from computing the address again for each step,
    // behind its condition.
    if constexpr (kCount > 1) asm volatile("" : "+l"(own));
#endif
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      const int at = (first + k) * kLanes;
      if (at < left) own[at] = narrow<To>(tile.at[k][0]);
    }
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

  // This lane's elements where mask is not 0, else 0. Device buffers are
  // aligned, whatever the caller's were.
  template <int kCount>
  static __device__ void read(const TensorView& tensor, int64_t own,
                              const Tile<1, kCount>& mask,
                              Tile<1, kCount>& out) {
    switch (tensor.dtype) {
      case DType::kF32:
        return read_as(static_cast<const float*>(tensor.data) + own, mask, out,
                       [](float x) { return x; });
      case DType::kBF16:
        return read_as(static_cast<const uint16_t*>(tensor.data) + own, mask,
                       out, [](uint16_t x) { return from_bf16(x); });
      case DType::kF16:
        return read_as(static_cast<const uint16_t*>(tensor.data) + own, mask,
                       out, [](uint16_t x) { return from_f16(x); });
    }
  }
  // The same without widening: elements of two bytes are the low half of the
  // float's bits until widen_words().
  template <int kCount>
  static __device__ void read_words(const TensorView& tensor, int64_t own,
                                    const Tile<1, kCount>& mask,
                                    Tile<1, kCount>& out) {
    if (tensor.dtype == DType::kF32) {
      const auto* from = static_cast<const uint32_t*>(tensor.data) + own;
      read_as(from, mask, out, [](uint32_t x) { return float_of(x); });
    } else {
      const auto* from = static_cast<const uint16_t*>(tensor.data) + own;
      read_as(from, mask, out, [](uint32_t x) { return float_of(x); });
    }
  }
  template <int kCount>
  static __device__ void widen_words(DType dtype, Tile<1, kCount>& words) {
    if (dtype == DType::kF32) return;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      float& x = words.at[k][0];
      const auto word = static_cast<uint16_t>(bits_of(x));
      x = dtype == DType::kBF16 ? from_bf16(word) : from_f16(word);
    }
  }

  template <int kCount, class T, class F>
  static __device__ void read_as(const T* from, const Tile<1, kCount>& mask,
                                 Tile<1, kCount>& out, F widen) {
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      out.at[k][0] = mask.at[k][0] != 0.0f ? widen(from[k * kLanes]) : 0.0f;
    }
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WARP_LANES_CUH_
