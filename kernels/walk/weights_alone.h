// A tile of a plan that wants weights by token and nothing else: no metrics, no
// rules, no loss. One pass from the inputs to the weights, which the phases
// would take through a tile in memory each. On the CPU; its bits are theirs.
#ifndef COUNTERWEIGHT_KERNELS_WALK_WEIGHTS_ALONE_H_
#define COUNTERWEIGHT_KERNELS_WALK_WEIGHTS_ALONE_H_

#include <cstdint>

#include "kernels/math/exp.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/cpu_lanes.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

class WeightsAlone {
 public:
  using State = TileState<CpuLanes>;
  using Acc = Accumulators<CpuLanes>;

  // Returns false, with nothing added to `acc`, for a tile that needs the
  // phases: one that is not whole, has two dtypes, or has a number that is not
  // finite or a log-prob above 0. REQUIRES: Plan::weights_alone, and no reasons
  // are wanted.
  static bool run(const Plan& plan, const Batch& batch, const Outputs& outputs,
                  State& s, Acc& acc) {
    const RatioSource source = plan.weight.spec.source;
    const TensorView& num = batch.tensors[numerator(source)];
    const TensorView& den = batch.tensors[denominator(source)];
    if (s.count != kTilePositions || outputs.weights == nullptr ||
        num.dtype != den.dtype) {
      return false;
    }
    CpuLanes::load_mask(batch.response_mask, s.position, s.count, s.mask);
    float* const weights = outputs.weights + s.position;
    if (!write(plan, num, den, s, weights)) return false;
    acc.count_each(kColumnTokens, s.steps,
                   [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                     return s.mask.vec(k, g);
                   });
    if (outputs.keep_mask == nullptr) return true;
    const uint8_t* const from = batch.response_mask + s.position;
    uint8_t* const to = outputs.keep_mask + s.position;
    COUNTERWEIGHT_IVDEP
    for (int i = 0; i < kTilePositions; ++i) to[i] = from[i] != 0 ? 1 : 0;
    return true;
  }

 private:
  // Reads kVecLanes elements as their numbers, which is exact.
  struct Float32 {
    static constexpr int kSize = 4;
    static Vec load(const char* from) {
      Vec x;
      __builtin_memcpy(&x, from, sizeof(x));
      return x;
    }
  };
  struct BFloat16 {
    static constexpr int kSize = 2;
    static Vec load(const char* from) {
      return reinterpret_cast<Vec>(bits_at(from) << 16);
    }
  };
  struct Float16 {
    static constexpr int kSize = 2;
    // from_f16() of each.
    static Vec load(const char* from) {
      const BitsVec bits = bits_at(from);
      const BitsVec magnitude = (bits & 0x7fff) << 13;
      const BitsVec finite =
          signed_bits(reinterpret_cast<Vec>(magnitude) * 0x1p112f);
      const BitsVec special = magnitude | 0x7f800000;
      return reinterpret_cast<Vec>(
          ((bits & 0x8000) << 16) |
          (magnitude >= 0x0f800000 ? special : finite));
    }
  };
  static BitsVec bits_at(const char* from) {
    typedef uint16_t Halves
        __attribute__((vector_size(kVecLanes * sizeof(uint16_t))));
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    return __builtin_convertvector(halves, BitsVec);
  }

  // False if some number needs the phases; the weights are meaningless then.
  static bool write(const Plan& plan, const TensorView& num,
                    const TensorView& den, const State& s, float* weights) {
    switch (num.dtype) {
      case DType::kF32:
        return write_of<Float32>(plan, num, den, s, weights);
      case DType::kBF16:
        return write_of<BFloat16>(plan, num, den, s, weights);
      case DType::kF16:
        return write_of<Float16>(plan, num, den, s, weights);
    }
    return false;
  }

  template <class Element>
  static bool write_of(const Plan& plan, const TensorView& numerator,
                       const TensorView& denominator, const State& s,
                       float* weights) {
    const char* const num =
        static_cast<const char*>(numerator.data) + s.position * Element::kSize;
    const char* const den = static_cast<const char*>(denominator.data) +
                            s.position * Element::kSize;
    // Two tiles. A prefetch may name memory that does not exist.
    constexpr int kAhead = 2 * kTilePositions * Element::kSize;
    const Vec least_weight = splat(plan.weight.least);
    const Vec most_weight = splat(plan.weight.most);
    // As integers, magnitudes are ordered, and numbers above 0 are above 0.
    BitsVec largest{};
    BitsVec highest{};
    for_each_group<kLanes>(s.steps, [&](int k,
                                        int g) COUNTERWEIGHT_INLINE_LAMBDA {
      const int offset = (k * kLanes + g * kVecLanes) * Element::kSize;
      const Vec mask = s.mask.vec(k, g);
      const auto counts = mask != 0.0f;
      Vec a = Element::load(num + offset);
      Vec b = Element::load(den + offset);
      __builtin_prefetch(num + offset + kAhead);
      __builtin_prefetch(den + offset + kAhead);
      a = counts ? a : Vec{};
      b = counts ? b : Vec{};
      const Vec l = a - b;
      const BitsVec size = magnitude_bits(l);
      largest = size > largest ? size : largest;
      const BitsVec first = signed_bits(a);
      const BitsVec second = signed_bits(b);
      highest = first > highest ? first : highest;
      highest = second > highest ? second : highest;
      const Vec w = clip(exp_terms(l).exp, least_weight, most_weight) * mask;
      float* const to = weights + k * kLanes + g * kVecLanes;
      __builtin_prefetch(to + kTilePositions, /*rw=*/1);
      __builtin_memcpy(to, &w, sizeof(w));
    });
    const BitsVec finite = magnitude_bits(splat(__FLT_MAX__));
    return !any((largest > finite) | (highest > 0));
  }

  template <class Bools>
  static bool any(Bools found) {
    alignas(64) int32_t lanes[kVecLanes];
    __builtin_memcpy(lanes, &found, sizeof(lanes));
    int32_t bits = 0;
    for (const int32_t lane : lanes) bits |= lane;
    return bits != 0;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_WEIGHTS_ALONE_H_
