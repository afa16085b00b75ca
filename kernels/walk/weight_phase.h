// Phase 4 of a tile: importance weights.
#ifndef COUNTERWEIGHT_KERNELS_WALK_WEIGHT_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_WEIGHT_PHASE_H_

#include <type_traits>

#include "kernels/math/exp.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/exact_log_ratio.h"
#include "kernels/walk/prefix.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// A weight and its distance from 1, each accurate for itself.
struct WeightVec {
  Vec weight;
  Vec excess;
};

// The ends of a weight, in registers.
struct WeightEnds {
  COUNTERWEIGHT_HD explicit WeightEnds(const WeightPlan& plan)
      : least(splat(plan.least)),
        most(splat(plan.most)),
        least_excess(splat(plan.least_excess)),
        most_excess(splat(plan.most_excess)) {}

  Vec least;
  Vec most;
  Vec least_excess;
  Vec most_excess;
};

// masks: plan.masks, as a type where it is known.
template <class Bool>
COUNTERWEIGHT_HD WeightVec bounded(const WeightPlan& plan,
                                   const WeightEnds& ends, Bool masks, Vec exp,
                                   Vec expm1) {
  WeightVec v = {clip(exp, ends.least, ends.most),
                 clip(expm1, ends.least_excess, ends.most_excess)};
  if (!masks) return v;
  const auto high = exp > plan.high_above;
  const auto inside = exp >= plan.low_from;
  const Vec zero{};
  const Vec gone = splat(-1.0f);
  v.weight = high ? zero : v.weight;
  v.excess = high ? gone : v.excess;
  return {inside ? v.weight : zero, inside ? v.excess : gone};
}

template <class Lanes, bool kStats>
struct WeightPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;

  // Adds the terms of the aggregate; called when the first after_rule rules
  // have run.
  COUNTERWEIGHT_HD static void aggregate(const Plan& plan, State& s, Acc& acc) {
    const WeightPlan& weight = plan.weight;
    const bool prefix = needs<Lanes>(plan, kNeedPrefixWeights);
    if (prefix) prefix_weights(plan, s, acc);
    if (kStats && measures<Lanes>(plan) && by_token(plan) &&
        needs<Lanes>(plan, kNeedLateWeights)) {
      count_seen(weight, s, acc);
    }
    if (!kStats || !needs<Lanes>(plan, kAggregates)) return;
    const bool sees_all = weight.spec.after_rule == 0;
    const RatioSource source = source_of(weight);
    add_exact_log_ratios(s, source, weight.spec.token_clamp, s.kept, sees_all,
                         measures_drift_of<Lanes>(plan, source),
                         kColumnWeightAggregate, acc);
    acc.count_each(kColumnWeightSeen, s.steps,
                   [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                     return s.kept.vec(k, g);
                   });
  }

  // Computes weights by token that depend on no rule, before the rules run,
  // while their inputs are at hand.
  COUNTERWEIGHT_HD static void by_tokens(const Plan& plan, State& s, Acc& acc) {
    if (!by_token(plan)) return;
    const int source = static_cast<int>(source_of(plan.weight));
    bound_and_add(plan, s, acc, s.exp[source], s.expm1[source]);
  }

  // Runs after all rules.
  COUNTERWEIGHT_HD static void finish(const Plan& plan, State& s, Acc& acc) {
    if (!kStats) return;
    if (has_rules<Lanes>(plan)) {
      acc.count_each(kColumnKept, s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return s.kept.vec(k, g);
                     });
    }
    if (!measures<Lanes>(plan)) return;
    add_kept_weights(plan, s, acc);
    count_zero_weights(plan, s, acc);
  }

  // Copies sums that were counted already, by the drift phase too.
  template <class Drift, class Columns>
  COUNTERWEIGHT_HD static void finish_segment(const Plan& plan,
                                              const Drift& drift,
                                              Columns& columns) {
    if (!kStats) return;
    if (!has_rules<Lanes>(plan)) {
      columns.count(kColumnKept) = drift.tokens();
    }
    if (by_token(plan) && !has_own_ratio(plan)) {
      columns.sum(kColumnRawExcess) = drift.excess();
    }
  }

 private:
  COUNTERWEIGHT_HD static bool by_token(const Plan& plan) {
    return needs<Lanes>(plan, kNeedTokenWeights);
  }

  COUNTERWEIGHT_HD static bool has_own_ratio(const Plan& plan) {
    return needs<Lanes>(plan, kNeedOwnRatio);
  }

  COUNTERWEIGHT_HD static RatioSource source_of(const WeightPlan& weight) {
    return Lanes::source(SourceUse::kCorrection, weight.spec.source);
  }

  COUNTERWEIGHT_HD static void count_seen(const WeightPlan& weight,
                                          const State& s, Acc& acc) {
    const int source = static_cast<int>(source_of(weight));
    const TileOf<Lanes>& exp = s.exp[source];
    const int columns[] = {kColumnWeightSeen, kColumnWeightSeenHigh};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = s.kept.vec(k, g);
                block[0] += m;
                count_where(exp.vec(k, g) > weight.high_above, m, block[1]);
              });
  }

  // Weights by token of what no rule dropped or zeroed; of sequence levels, how
  // many tokens that is, where no other column has it.
  COUNTERWEIGHT_HD static void add_kept_weights(const Plan& plan,
                                                const State& s, Acc& acc) {
    if (!needs<Lanes>(plan, kNeedTokenHits)) return;
    const bool zeroes = needs<Lanes>(plan, kNeedZeroing);
    const auto left = [&](int k, int h, WideVec x) COUNTERWEIGHT_INLINE_LAMBDA {
      const WideVec kept = s.kept.wide(k, h) != 0.0 ? x : WideVec{};
      if (!zeroes) return kept;
      return s.zeroed.wide(k, h) != 0.0 ? WideVec{} : kept;
    };
    if (needs<Lanes>(plan, kAnyTokenWeights)) {
      acc.add_exact_squares(kColumnKeptWeight, kColumnKeptWeightSquared,
                            s.steps,
                            [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                              return left(k, h, s.weight.wide(k, h));
                            });
    } else if (zeroes && needs<Lanes>(plan, kNeedRowWeights)) {
      const WideVec one = splat_wide(1.0);
      acc.add_exact(kColumnKeptWeight, s.steps,
                    [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                      return left(k, h, one);
                    });
    }
  }

  // Weights by token that are 0, and tokens that a rule zeroed.
  COUNTERWEIGHT_HD static void count_zero_weights(const Plan& plan,
                                                  const State& s, Acc& acc) {
    const bool vanishes = needs<Lanes>(plan, kNeedVanishing);
    const bool zeroes = needs<Lanes>(plan, kNeedZeroing);
    if (!vanishes && !zeroes) return;
    acc.count_each(kColumnZeroWeight, s.steps,
                   [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                     const Vec m = s.mask.vec(k, g);
                     // Without rules that zero, their tile holds nothing.
                     Vec hit{};
                     if (zeroes) hit = s.zeroed.vec(k, g) != 0.0f ? m : Vec{};
                     // Without weights by token their tile holds nothing.
                     return vanishes ? (s.weight.vec(k, g) == 0.0f ? m : hit)
                                     : hit;
                   });
  }

  COUNTERWEIGHT_HD static void prefix_weights(const Plan& plan, State& s,
                                              Acc& acc) {
    const WeightPlan& weight = plan.weight;
    WeightTiles<Lanes>& t = s.tiles.template begin<WeightTiles<Lanes>>();
    const ExactLogRatio<Lanes> exact(s, source_of(weight),
                                     weight.spec.token_clamp);
    for_each_prefix_mean<Lanes>(
        s.steps, acc.carry[weight.prefix],
        [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA { return exact(k, h); },
        s.kept,
        [&](int k, int g, const auto& means) COUNTERWEIGHT_INLINE_LAMBDA {
          // A masked token would have the mean of the tokens before it.
          const Vec mean = narrowed([&](int h) { return means[h]; });
          const Vec own = s.mask.vec(k, g) != 0.0f ? mean : Vec{};
          const auto terms = exp_terms(own);
          t.exp.set(k, g, terms.exp);
          t.expm1.set(k, g, terms.expm1);
        });
    bound_and_add(plan, s, acc, t.exp, t.expm1);
  }

  // exp and expm1 of the logarithm of the weight, without its clamp.
  COUNTERWEIGHT_HD static void bound_and_add(const Plan& plan, State& s,
                                             Acc& acc, const TileOf<Lanes>& exp,
                                             const TileOf<Lanes>& expm1) {
    const bool adds = kStats && measures<Lanes>(plan);
    constexpr bool kVanishing = Lanes::may(kNeedVanishing);
    if constexpr (kVanishing && kWidth == 1) {
      bound_and_add_as(plan.weight.masks, adds, plan, s, acc, exp, expm1);
    } else if (kVanishing && plan.weight.masks) {
      bound_and_add_as(std::true_type(), adds, plan, s, acc, exp, expm1);
    } else {
      bound_and_add_as(std::false_type(), adds, plan, s, acc, exp, expm1);
    }
  }

  template <class Bool>
  COUNTERWEIGHT_HD static void bound_and_add_as(Bool masks, bool adds,
                                                const Plan& plan, State& s,
                                                Acc& acc,
                                                const TileOf<Lanes>& exp,
                                                const TileOf<Lanes>& expm1) {
    const WeightPlan& weight = plan.weight;
    // Masked tokens have finite weights, as their logarithm is 0.
    const WeightEnds ends(weight);
    const auto value = [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
      const Vec m = s.mask.vec(k, g);
      const WeightVec v =
          bounded(weight, ends, masks, exp.vec(k, g), expm1.vec(k, g));
      return WeightVec{v.weight * m, v.excess * m};
    };
    if (!adds) {
      for_each_group<kWidth>(s.steps,
                             [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                               s.weight.set(k, g, value(k, g).weight);
                             });
      return;
    }
    const PassColumns<2, 2> columns = {
        {kColumnWeightExcess, kColumnWeightExcessSquared},
        {kColumnWeightHigh, kColumnWeightLow},
        kExtremumWeight};
    acc.collect(columns, s.steps,
                [&](int k, int g, auto& to) COUNTERWEIGHT_INLINE_LAMBDA {
                  const Vec m = s.mask.vec(k, g);
                  const Vec own = exp.vec(k, g);
                  const WeightVec v = value(k, g);
                  s.weight.set(k, g, v.weight);
                  to.sum[0] += v.excess;
                  to.sum[1] += v.excess * v.excess;
                  count_where(own > weight.high_above, m, to.count[0]);
                  count_where(!(own >= weight.counts_low_from), m, to.count[1]);
                  to.extend_where(m != 0.0f, v.weight);
                });
    acc.add_exact_squares(kColumnWeight, kColumnWeightSquared, s.steps,
                          [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                            return s.weight.wide(k, h);
                          });
    if (has_own_ratio(plan)) {
      const Vec lowest = splat(weight.clamp.expm1_low);
      const Vec highest = splat(weight.clamp.expm1_high);
      acc.add_each(kColumnRawExcess, s.steps,
                   [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                     return clip(expm1.vec(k, g), lowest, highest) *
                            s.mask.vec(k, g);
                   });
    }
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_WEIGHT_PHASE_H_
