// Phase 1 of a tile: inputs, masks, non-finite numbers, log ratios and their
// exponentials.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RATIO_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RATIO_PHASE_H_

#include "kernels/math/bits.h"
#include "kernels/math/exp.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/exact_log_ratio.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Calls f(i) for each bit i of `bits`, the ones from kRare on behind one test:
// few plans have them.
template <int kRare, int kCount, class F>
COUNTERWEIGHT_HD void for_each_bit(uint32_t bits, F f) {
  COUNTERWEIGHT_UNROLL
  for (int i = 0; i < kRare; ++i) {
    if ((bits >> i & 1u) != 0) f(i);
  }
  if (bits >> kRare == 0) return;
  COUNTERWEIGHT_UNROLL
  for (int i = kRare; i < kCount; ++i) {
    if ((bits >> i & 1u) != 0) f(i);
  }
}
// `sources`: bits of RatioSource.
template <class F>
COUNTERWEIGHT_HD void for_each_source(uint32_t sources, F f) {
  constexpr int kRare = static_cast<int>(RatioSource::kCurrentSelf);
  for_each_bit<kRare, kNumRatioSources>(sources, f);
}

template <class Lanes>
struct RatioPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;

  // exps: sources with an exponential that this walk needs.
  COUNTERWEIGHT_HD static void run(const Plan& plan, const Batch& batch,
                                   uint32_t exps, State& s,
                                   Accumulators<Lanes>& acc) {
    if constexpr (Lanes::kReadsAhead) {
      Lanes::take(plan, s);
      set_log_ratios(plan, s);
    } else {
      Lanes::load_mask(batch.response_mask, s.position, s.count, s.mask);
      for_each_bit<kNumInputRoles, kNumTensors>(
          Lanes::inputs(plan.inputs), [&](int r) COUNTERWEIGHT_INLINE_LAMBDA {
            Lanes::load(batch.tensors[r], s.position, s.count, s.mask,
                        s.input[r]);
          });
      const bool bad = any_bad(plan, s, s.steps, s.largest,
                               [&](int r, int k, int g, Vec num, Vec den)
                                   COUNTERWEIGHT_INLINE_LAMBDA {
                                     const Vec l = num - den;
                                     s.log_ratio[r].set(k, g, l);
                                     return l;
                                   });
      const bool positive = any_positive(plan, s, s.steps);
      s.has_unknown = false;
      if (bad) {
        repair(plan, s, s.steps, s.position, acc);
        set_log_ratios(plan, s);
      }
      if (positive) count_positive(plan, s, s.steps, acc);
    }
    for_each_source(
        Lanes::sources(exps), [&](int r) COUNTERWEIGHT_INLINE_LAMBDA {
          // Compilers see for themselves what is not read of tiles in
          // registers.
          if (!Lanes::kReadsAhead && (plan.whole_exps >> r & 1u) == 0) {
            for_each_group<kWidth>(
                s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                  s.exp[r].set(k, g, exp_terms(s.log_ratio[r].vec(k, g)).exp);
                });
            return;
          }
          for_each_group<kWidth>(
              s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                const auto terms = exp_terms(s.log_ratio[r].vec(k, g));
                s.exp[r].set(k, g, terms.exp);
                s.expm1[r].set(k, g, terms.expm1);
                s.k3[r].set(k, g, terms.k3);
              });
        });
    for_each_group<kWidth>(s.steps,
                           [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                             s.kept.set(k, g, s.mask.vec(k, g));
                           });
    if (needs<Lanes>(plan, kNeedZeroing)) {
      for_each_group<kWidth>(s.steps,
                             [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                               s.zeroed.set(k, g, Vec{});
                             });
    }
  }

  // Checks a block that was read ahead, from `position`; called once per block,
  // not per tile.
  template <class Ahead>
  COUNTERWEIGHT_HD static void admit(const Plan& plan, int64_t position,
                                     Ahead& block, Accumulators<Lanes>& acc) {
    // An upper bound of |num - den|. The difference itself would occupy
    // registers until the tiles use it.
    LaneValues<kWidth, float> largest;
    const bool may_be_bad = any_bad(plan, block, kSteps, largest,
                                    [](int, int, int, Vec num, Vec den)
                                        COUNTERWEIGHT_INLINE_LAMBDA {
                                          return absolute(num) + absolute(den);
                                        });
    const bool positive = any_positive(plan, block, kSteps);
    if (!may_be_bad && !positive) return;
    // A copy in memory is indexed there; the block stays in registers.
    Ahead copy = block;
    if (may_be_bad) repair(plan, copy, kSteps, position, acc);
    if (positive) count_positive(plan, copy, kSteps, acc);
    block = copy;
  }

 private:
  // Gives the tokens without a rollout log-prob the drift's numerator for one,
  // so that the drift is 0 there. Marks them for other ratios; no walk that
  // reads blocks ahead has any (kNeedUnknown).
  template <class Block>
  COUNTERWEIGHT_HD static void settle_unknown(
      const Plan& plan, Block& block, int steps,
      LaneValues<kWidth, double>& count) {
    constexpr bool kMarks = !Lanes::kReadsAhead;
    constexpr int kRollout = static_cast<int>(InputRole::kRollout);
    const auto& known = block.input[numerator(
        Lanes::source(SourceUse::kDrift, plan.spec.drift_source))];
    auto& rollout = block.input[kRollout];
    if constexpr (kMarks) block.has_unknown = true;
    COUNTERWEIGHT_NO_UNROLL
    for (int k = 0; k < steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        const float x = rollout.at[k][i];
        const bool is_unknown = !(x == x);
        const float other = known.at[k][i];
        if constexpr (kMarks) {
          block.unknown.at[k][i] = is_unknown ? 1.0f : 0.0f;
        }
        if (!is_unknown) continue;
        rollout.at[k][i] = is_finite(other) ? other : 0.0f;
        count.at[i] += 1.0;
      }
    }
  }

  // f(source, step, group of lanes, numerator, denominator) for every log
  // ratio. Block: a tile's state or a block read ahead.
  template <class Block, class F>
  COUNTERWEIGHT_HD static void for_each_ratio(const Plan& plan,
                                              const Block& block, int steps,
                                              F f) {
    for_each_source(Lanes::sources(plan.sources),
                    [&](int r) COUNTERWEIGHT_INLINE_LAMBDA {
                      const auto source = static_cast<RatioSource>(r);
                      const auto& num = block.input[numerator(source)];
                      const auto& den = block.input[denominator(source)];
                      for_each_group<kWidth>(
                          steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                            f(r, k, g, num.vec(k, g), den.vec(k, g));
                          });
                    });
  }

  COUNTERWEIGHT_HD static void set_log_ratios(const Plan& plan, State& s) {
    for_each_ratio(plan, s, s.steps,
                   [&](int r, int k, int g, Vec num, Vec den)
                       COUNTERWEIGHT_INLINE_LAMBDA {
                         s.log_ratio[r].set(k, g, num - den);
                       });
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((Lanes::sources(plan.sources) >> r & 1u) == 0) continue;
      if (!may_be_unknown(s, static_cast<RatioSource>(r))) continue;
      for_each_group<kWidth>(
          s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            const Vec l = s.log_ratio[r].vec(k, g);
            s.log_ratio[r].set(k, g, s.unknown.vec(k, g) != 0.0f ? Vec{} : l);
          });
    }
  }

  // True if f of any log ratio, or any advantage, is non-finite. Gives the
  // magnitude of each lane's largest f.
  template <class Block, class F>
  COUNTERWEIGHT_HD static bool any_bad(const Plan& plan, const Block& block,
                                       int steps,
                                       LaneValues<kWidth, float>& largest_of,
                                       F f) {
    // Magnitudes are ordered as their bits are, infinity and NaN last.
    BitsVec largest[kWidth / kVecLanes] = {};
    const auto add = [&](int g, Vec x) COUNTERWEIGHT_INLINE_LAMBDA {
      const BitsVec size = magnitude_bits(x);
      largest[g] = size > largest[g] ? size : largest[g];
    };
    for_each_ratio(
        plan, block, steps,
        [&](int r, int k, int g, Vec num, Vec den)
            COUNTERWEIGHT_INLINE_LAMBDA { add(g, f(r, k, g, num, den)); });
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      store(largest[g], &largest_of.at[g * kVecLanes]);
    }
    if (Lanes::inputs(plan.inputs) >> static_cast<int>(InputRole::kAdvantages) &
        1u) {
      const auto& a = block.input[static_cast<int>(InputRole::kAdvantages)];
      for_each_group<kWidth>(
          steps, [&](int k, int g)
                     COUNTERWEIGHT_INLINE_LAMBDA { add(g, a.vec(k, g)); });
    }
    const BitsVec finite = magnitude_bits(splat(__FLT_MAX__));
    Vec bad[kWidth / kVecLanes];
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      bad[g] = largest[g] > finite ? splat(1.0f) : Vec{};
    }
    return any_of<Lanes>(bad);
  }

  // f(values) for each log-prob tensor that the plan reads.
  template <class Block, class F>
  COUNTERWEIGHT_HD static void for_each_log_prob(const Plan& plan,
                                                 const Block& block, F f) {
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumInputRoles; ++r) {
      const bool is_log_prob = r != static_cast<int>(InputRole::kAdvantages);
      if (is_log_prob && (Lanes::inputs(plan.inputs) >> r & 1u) != 0) {
        f(block.input[r]);
      }
    }
  }

  // True if a log-prob is above 0. Numbers above 0 are integers above 0.
  template <class Block>
  COUNTERWEIGHT_HD static bool any_positive(const Plan& plan,
                                            const Block& block, int steps) {
    BitsVec largest[kWidth / kVecLanes] = {};
    for_each_log_prob(
        plan, block, [&](const auto& x) COUNTERWEIGHT_INLINE_LAMBDA {
          for_each_group<kWidth>(
              steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                const BitsVec bits = signed_bits(x.vec(k, g));
                largest[g] = bits > largest[g] ? bits : largest[g];
              });
        });
    Vec found[kWidth / kVecLanes];
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      found[g] = largest[g] > 0 ? splat(1.0f) : Vec{};
    }
    return any_of<Lanes>(found);
  }

  // Counts the tokens with a log-prob above 0, after those that are not finite
  // are removed.
  template <class Block>
  COUNTERWEIGHT_HD static void count_positive(const Plan& plan,
                                              const Block& block, int steps,
                                              Accumulators<Lanes>& acc) {
    LaneValues<kWidth, double>& count = acc.columns.sum(kColumnPositive);
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      LaneValues<kVecLanes, float> found;
      Vec sum{};
      COUNTERWEIGHT_NO_UNROLL
      for (int k = 0; k < steps; ++k) {
        Vec largest{};
        for_each_log_prob(plan, block,
                          [&](const auto& x) COUNTERWEIGHT_INLINE_LAMBDA {
                            largest = most(x.vec(k, g), largest);
                          });
        sum += largest > 0.0f ? splat(1.0f) : Vec{};
      }
      store(sum, found.at);
      for (int i = 0; i < kVecLanes; ++i) {
        count.at[g * kVecLanes + i] += static_cast<double>(found.at[i]);
      }
    }
  }

  // Notes the non-finite tokens and removes them as the policy requires. REJECT
  // neutralizes: its results are discarded, but must be computable.
  template <class Block>
  COUNTERWEIGHT_HD static void repair(const Plan& plan, Block& block, int steps,
                                      int64_t first, Accumulators<Lanes>& acc) {
    LaneValues<kWidth, double>& count = acc.columns.sum(kColumnNonFinite);
    if (plan.spec.unknown_rollout) settle_unknown(plan, block, steps, count);
    COUNTERWEIGHT_NO_UNROLL
    for (int k = 0; k < steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        const int code = first_bad_role(plan, block, k, i);
        if (code < 0) continue;
        const int64_t position = first + k * kLanes + Lanes::lane(i);
        const int64_t key = position * kBadTokenCodes + code;
        acc.first_bad = key < acc.first_bad ? key : acc.first_bad;
        count.at[i] += 1.0;
        neutralize(plan, block, k, i);
        if (plan.spec.non_finite == NonFinitePolicy::kDrop) block.drop(k, i);
      }
    }
  }

  // Log-probs become 0, and so every log ratio. The advantage stays where it
  // means something: it and the log-prob that a gradient would go to are
  // finite. Means over turns are those of the token's turn.
  template <class Block>
  COUNTERWEIGHT_HD static void neutralize(const Plan& plan, Block& block, int k,
                                          int i) {
    constexpr int kCurrent = static_cast<int>(InputRole::kCurrent);
    constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);
    const bool keeps =
        plan.loss.active && is_finite(block.input[kCurrent].at[k][i]);
    const float advantage = keeps ? block.input[kAdvantages].at[k][i] : 0.0f;
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumInputRoles; ++r) block.input[r].at[k][i] = 0.0f;
    block.input[kAdvantages].at[k][i] = is_finite(advantage) ? advantage : 0.0f;
  }

  // role * 2 + (0: the input itself, 1: a difference of finite inputs), or -1.
  template <class Block>
  COUNTERWEIGHT_HD static int first_bad_role(const Plan& plan,
                                             const Block& block, int k, int i) {
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumTensors; ++r) {
      if ((Lanes::inputs(plan.inputs) >> r & 1u) != 0 &&
          !is_finite(block.input[r].at[k][i])) {
        return r * 2;
      }
    }
    COUNTERWEIGHT_UNROLL
    for (int r = 0; r < kNumRatioSources; ++r) {
      if ((Lanes::sources(plan.sources) >> r & 1u) == 0) continue;
      const auto source = static_cast<RatioSource>(r);
      const float l = block.input[numerator(source)].at[k][i] -
                      block.input[denominator(source)].at[k][i];
      if (!is_finite(l)) return numerator(source) * 2 + 1;
    }
    return -1;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RATIO_PHASE_H_
