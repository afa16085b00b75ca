// A tile of a plan that wants weights by token and nothing else: no metrics, no
// rules, no loss. One pass from the inputs to the weights, which the phases
// would take through a tile in memory each. On the CPU; its bits are theirs.
#ifndef COUNTERWEIGHT_KERNELS_WALK_WEIGHTS_ALONE_H_
#define COUNTERWEIGHT_KERNELS_WALK_WEIGHTS_ALONE_H_

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
  // phases: one that is not whole, not float32, or has a number that is not
  // finite or a log-prob above 0. REQUIRES: Plan::weights_alone, and no reasons
  // are wanted.
  static bool run(const Plan& plan, const Batch& batch, const Outputs& outputs,
                  State& s, Acc& acc) {
    const RatioSource source = plan.weight.spec.source;
    const TensorView& num = batch.tensors[numerator(source)];
    const TensorView& den = batch.tensors[denominator(source)];
    if (s.count != kTilePositions || outputs.weights == nullptr ||
        num.dtype != DType::kF32 || den.dtype != DType::kF32) {
      return false;
    }
    CpuLanes::load_mask(batch.response_mask, s.position, s.count, s.mask);
    if (!write(plan, at(num, s), at(den, s), s, outputs.weights + s.position)) {
      return false;
    }
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
  static const char* at(const TensorView& tensor, const State& s) {
    return static_cast<const char*>(tensor.data) +
           s.position * static_cast<int64_t>(sizeof(float));
  }

  // False if some number needs the phases; the weights are meaningless then.
  static bool write(const Plan& plan, const char* num, const char* den,
                    const State& s, float* weights) {
    const Vec least_weight = splat(plan.weight.least);
    const Vec most_weight = splat(plan.weight.most);
    // As integers, magnitudes are ordered, and numbers above 0 are above 0.
    BitsVec largest{};
    BitsVec highest{};
    for_each_group<kLanes>(s.steps, [&](int k,
                                        int g) COUNTERWEIGHT_INLINE_LAMBDA {
      constexpr int kBytes = static_cast<int>(sizeof(Vec));
      const int offset =
          (k * kLanes + g * kVecLanes) * static_cast<int>(sizeof(float));
      const Vec mask = s.mask.vec(k, g);
      const auto counts = mask != 0.0f;
      Vec a;
      Vec b;
      __builtin_memcpy(&a, num + offset, kBytes);
      __builtin_memcpy(&b, den + offset, kBytes);
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
      __builtin_memcpy(to, &w, kBytes);
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

  // Distance of the prefetch of inputs, two tiles. A prefetch may name memory
  // that does not exist.
  static constexpr int kAhead = 2 * kTilePositions * sizeof(float);
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_WEIGHTS_ALONE_H_
