// Phase 4 of a tile: importance weights.
#ifndef COUNTERWEIGHT_KERNELS_WALK_WEIGHT_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_WEIGHT_PHASE_H_

#include "kernels/math/exp.h"
#include "kernels/walk/prefix.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// A weight and its distance from 1, each accurate for itself.
struct WeightVec {
  Vec weight;
  Vec excess;
};

COUNTERWEIGHT_HD WeightVec bounded(const WeightPlan& plan, WeightVec raw) {
  const bool masks = plan.spec.bound == Bound::kMask;
  const float above = masks ? 0.0f : plan.upper;
  const float below = masks ? 0.0f : plan.lower;
  const auto high = raw.weight > plan.upper;
  const auto low = raw.weight < plan.lower;
  const Vec weight = high ? splat(above) : raw.weight;
  const Vec excess = high ? splat(above - 1.0f) : raw.excess;
  return {low ? splat(below) : weight, low ? splat(below - 1.0f) : excess};
}

template <class Lanes, bool kStats>
struct WeightPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;

  // What the aggregate sees: called when the first after_rule rules have run.
  COUNTERWEIGHT_HD static void aggregate(const Plan& plan, State& s, Acc& acc) {
    const WeightPlan& weight = plan.weight;
    const bool prefix = Lanes::may(kFeaturePrefixes) && weight.prefix >= 0;
    if (prefix) prefix_weights(weight, s, acc);
    if (kStats && weight.spec.level == Level::kToken &&
        weight.spec.after_rule > 0) {
      count_seen(weight, s, acc);
    }
    const bool sums = IsSequenceLevel(weight.spec.level) || prefix;
    if (!kStats || !sums) return;
    acc.add_exact(kColumnWeightAggregate, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    const WideVec l = exact(weight, s, k, h);
                    return s.left.wide(k, h) != 0.0 ? l : WideVec{};
                  });
    acc.count_each(kColumnWeightSeen, s.steps,
                   [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                     return s.left.vec(k, g);
                   });
  }

  // After all rules.
  COUNTERWEIGHT_HD static void finish(const Plan& plan, State& s, Acc& acc) {
    const WeightPlan& weight = plan.weight;
    if (weight.spec.level == Level::kToken) {
      const int source = static_cast<int>(source_of(weight));
      const Tile<kWidth>& l = s.log_ratio[source];
      bound_and_add(weight, s, acc, l, s.exp[source], s.expm1[source],
                    weight.clamp);
    }
    if (!kStats) return;
    const bool by_token = weight.spec.level == Level::kToken ||
                          weight.spec.level == Level::kPrefix;
    const int columns[] = {kColumnKept, kColumnZeroWeight};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = s.mask.vec(k, g);
                const Vec hit = s.zeroed.vec(k, g) != 0.0f ? m : Vec{};
                block[0] += s.left.vec(k, g);
                // Without weights by token the tile of weights holds nothing.
                block[1] +=
                    by_token ? (s.weight.vec(k, g) == 0.0f ? m : hit) : hit;
              });
  }

 private:
  COUNTERWEIGHT_HD static RatioSource source_of(const WeightPlan& weight) {
    return Lanes::source(SourceUse::kCorrection, weight.spec.source);
  }

  COUNTERWEIGHT_HD static void count_seen(const WeightPlan& weight,
                                          const State& s, Acc& acc) {
    const int source = static_cast<int>(source_of(weight));
    const Tile<kWidth>& l = s.log_ratio[source];
    const Tile<kWidth>& exp = s.exp[source];
    const int columns[] = {kColumnWeightSeen, kColumnWeightSeenHigh};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = s.left.vec(k, g);
                const Vec own = exp.vec(k, g);
                const Vec raw = l.vec(k, g) > weight.clamp.clamp
                                    ? splat(weight.clamp.exp_high)
                                    : own;
                block[0] += m;
                block[1] += raw > weight.upper ? m : Vec{};
              });
  }

  COUNTERWEIGHT_HD static WideVec exact(const WeightPlan& weight,
                                        const State& s, int k, int h) {
    return exact_log_ratio(s, source_of(weight), weight.spec.token_clamp, k, h);
  }

  COUNTERWEIGHT_HD static void prefix_weights(const WeightPlan& weight,
                                              State& s, Acc& acc) {
    for_each_prefix_mean<Lanes>(
        s.steps, acc.carry[weight.prefix],
        [&](int k, int h)
            COUNTERWEIGHT_INLINE_LAMBDA { return exact(weight, s, k, h); },
        s.left,
        [&](int k, int i, double mean) COUNTERWEIGHT_INLINE_LAMBDA {
          s.statistic.at[k][i] = static_cast<float>(mean);
        });
    Tile<kWidth>& exp = s.high;
    Tile<kWidth>& expm1 = s.low;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const ExpTerms terms = exp_terms(s.statistic.at[k][i]);
      exp.at[k][i] = terms.exp;
      expm1.at[k][i] = terms.expm1;
    });
    bound_and_add(weight, s, acc, s.statistic, exp, expm1,
                  weight.aggregate_clamp);
  }

  // exp and expm1 of the logarithm l, which `c` clamps.
  COUNTERWEIGHT_HD static void bound_and_add(const WeightPlan& weight, State& s,
                                             Acc& acc, const Tile<kWidth>& l,
                                             const Tile<kWidth>& exp,
                                             const Tile<kWidth>& expm1,
                                             const ClampTerms& c) {
    const auto raw_of = [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
      const Vec log = l.vec(k, g);
      const auto high = log > c.clamp;
      const auto low = log < -c.clamp;
      const Vec raw = high ? splat(c.exp_high) : exp.vec(k, g);
      const Vec excess = high ? splat(c.expm1_high) : expm1.vec(k, g);
      return WeightVec{low ? splat(c.exp_low) : raw,
                       low ? splat(c.expm1_low) : excess};
    };
    if (!kStats) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < s.steps; ++k) {
        for (int g = 0; g < kWidth / kVecLanes; ++g) {
          const Vec w = bounded(weight, raw_of(k, g)).weight;
          s.weight.set(k, g, s.mask.vec(k, g) != 0.0f ? w : Vec{});
        }
      }
      return;
    }
    const int columns[] = {kColumnWeight, kColumnWeightSquared,
                           kColumnWeightExcess, kColumnWeightExcessSquared,
                           kColumnRawExcess};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[5]) COUNTERWEIGHT_INLINE_LAMBDA {
              const Vec m = s.mask.vec(k, g);
              const auto counts = m != 0.0f;
              const WeightVec raw = raw_of(k, g);
              const WeightVec all = bounded(weight, raw);
              const Vec w = counts ? all.weight : Vec{};
              const Vec v = counts ? all.excess : Vec{};
              s.weight.set(k, g, w);
              block[0] += w;
              block[1] += w * w;
              block[2] += v;
              block[3] += v * v;
              block[4] += counts ? raw.excess : Vec{};
            });
    const int counts[] = {kColumnWeightHigh, kColumnWeightLow};
    acc.count(counts, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = s.mask.vec(k, g);
                const Vec raw = raw_of(k, g).weight;
                block[0] += raw > weight.upper ? m : Vec{};
                block[1] += raw < weight.low_threshold ? m : Vec{};
              });
    acc.extend(kExtremumWeight, s.steps, s.weight, s.mask);
    acc.extend(kExtremumRawLog, s.steps, l, s.mask);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_WEIGHT_PHASE_H_
