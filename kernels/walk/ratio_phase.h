// Phase 1 of a tile: inputs, masks, non-finite numbers, log ratios and their
// exponentials.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RATIO_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RATIO_PHASE_H_

#include "kernels/math/bits.h"
#include "kernels/math/exp.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct RatioPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;

  COUNTERWEIGHT_HD static void run(const Plan& plan, const Batch& batch,
                                   State& s, Accumulators<Lanes>& acc) {
    Lanes::load_mask(batch.response_mask, s.position, s.count, s.mask);
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumInputRoles; ++r) {
      if ((Lanes::inputs(plan.inputs) >> r & 1u) == 0) continue;
      Lanes::load(batch.tensors[r], s.position, s.count, s.mask, s.input[r]);
    }
    if (subtract(plan, s)) {
      repair(plan, s, acc);
      subtract(plan, s);
    }
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((Lanes::sources(plan.exp_sources) >> r & 1u) == 0) continue;
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        const ExpTerms terms = exp_terms(s.log_ratio[r].at[k][i]);
        s.exp[r].at[k][i] = terms.exp;
        s.expm1[r].at[k][i] = terms.expm1;
        s.k3[r].at[k][i] = terms.k3;
      });
    }
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      s.left.at[k][i] = s.mask.at[k][i];
      s.zeroed.at[k][i] = 0.0f;
    });
  }

 private:
  // Log ratios of every source; true if any token is non-finite.
  COUNTERWEIGHT_HD static bool subtract(const Plan& plan, State& s) {
    LaneValues<kWidth, float> bad{};
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((Lanes::sources(plan.sources) >> r & 1u) == 0) continue;
      const auto source = static_cast<RatioSource>(r);
      const Tile<kWidth>& num = s.input[numerator(source)];
      const Tile<kWidth>& den = s.input[denominator(source)];
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        const float l = num.at[k][i] - den.at[k][i];
        s.log_ratio[r].at[k][i] = l;
        bad.at[i] = __builtin_fabsf(l) <= __FLT_MAX__ ? bad.at[i] : 1.0f;
      });
    }
    if (Lanes::inputs(plan.inputs) >> static_cast<int>(InputRole::kAdvantages) &
        1u) {
      const Tile<kWidth>& a = s.input[static_cast<int>(InputRole::kAdvantages)];
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        bad.at[i] =
            __builtin_fabsf(a.at[k][i]) <= __FLT_MAX__ ? bad.at[i] : 1.0f;
      });
    }
    return Lanes::any(bad);
  }

  // Notes the tile's non-finite tokens and takes them out as the policy says.
  // REJECT neutralizes: its results are thrown away, but must be computable.
  COUNTERWEIGHT_HD static void repair(const Plan& plan, State& s,
                                      Accumulators<Lanes>& acc) {
    LaneValues<kWidth, double>& count = acc.columns.sum(kColumnNonFinite);
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        const int code = first_bad_role(plan, s, k, i);
        if (code < 0) continue;
        const int64_t position = s.position + k * kLanes + Lanes::lane(i);
        const int64_t key = position * kBadTokenCodes + code;
        acc.first_bad = key < acc.first_bad ? key : acc.first_bad;
        count.at[i] += 1.0;
        neutralize(plan, s, k, i);
        if (plan.spec.non_finite == NonFinitePolicy::kDrop) {
          s.mask.at[k][i] = 0.0f;
          s.reasons.at[k][i] |= kReasonNonFinite;
        }
      }
    }
  }

  // Log-probs become 0, and so every log ratio. The advantage stays where it
  // means something: it and the log-prob that a gradient would go to are
  // finite.
  COUNTERWEIGHT_HD static void neutralize(const Plan& plan, State& s, int k,
                                          int i) {
    constexpr int kCurrent = static_cast<int>(InputRole::kCurrent);
    constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);
    const bool keeps =
        plan.loss.active && is_finite(s.input[kCurrent].at[k][i]);
    const float advantage = keeps ? s.input[kAdvantages].at[k][i] : 0.0f;
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumInputRoles; ++r) s.input[r].at[k][i] = 0.0f;
    s.input[kAdvantages].at[k][i] = is_finite(advantage) ? advantage : 0.0f;
  }

  // role * 2 + (0: the input itself, 1: a difference of finite inputs), or -1.
  COUNTERWEIGHT_HD static int first_bad_role(const Plan& plan, const State& s,
                                             int k, int i) {
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumInputRoles; ++r) {
      if ((Lanes::inputs(plan.inputs) >> r & 1u) != 0 &&
          !is_finite(s.input[r].at[k][i])) {
        return r * 2;
      }
    }
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((Lanes::sources(plan.sources) >> r & 1u) != 0 &&
          !is_finite(s.log_ratio[r].at[k][i])) {
        return numerator(static_cast<RatioSource>(r)) * 2 + 1;
      }
    }
    return -1;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RATIO_PHASE_H_
