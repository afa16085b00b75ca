// Phase 3 of a tile, once per rule: its statistic, what it drops or zeroes, and
// its sums.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_

#include "kernels/walk/exact_log_ratio.h"
#include "kernels/walk/prefix.h"
#include "kernels/walk/rule_sums.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// kStats: add to the columns. kOutput: this is the pass that writes, all
// decisions are known.
template <class Lanes, bool kStats, bool kOutput>
struct RulePhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  using Sums = RuleSums<Lanes>;

  // explains: true if reason bits are wanted.
  COUNTERWEIGHT_HD static void run(const Plan& plan, int r, uint32_t row_fired,
                                   bool explains, State& s, Acc& acc) {
    RuleTiles<Lanes>& t = s.tiles.template begin<RuleTiles<Lanes>>();
    const RulePlan& rule = plan.rules[r];
    const bool sequential = needs<Lanes>(plan, kNeedSequential);
    const TileOf<Lanes>& seen = Lanes::choose(sequential, s.kept, s.mask);
    // No decision depends on the sums of token rules.
    const bool adds = kStats && measures<Lanes>(plan);
    if (rule.is_sequence) {
      if (kStats) {
        Sums::add_sequence_sums(plan, r, s, seen, sequential, acc);
      }
      const bool applies = kOutput || rule.hits_in_statistics;
      if (!applies || (row_fired >> r & 1u) == 0) return;
      fire_row(s, seen);
    } else if (Lanes::may(kNeedPrefixes) && rule.prefix >= 0) {
      Sums::evaluate(rule, s);
      outside_prefix(rule, s, seen, acc.carry[rule.prefix]);
      if (kStats) {
        Sums::add_prefix_aggregate(plan, r, s, seen, sequential, acc);
        if (sequential) Sums::count_seen(r, s, seen, acc);
      }
      if (adds) {
        Sums::add_token_sums(plan, r, false, s, seen, sequential, acc);
        Sums::count_marked(r, s, seen, acc);
      }
      fire_marked(s, seen);
    } else {
      Sums::evaluate(rule, s);
      const bool drops_at_once =
          drops(rule) && !Sums::is_conditional(rule) && !explains;
      if (adds) {
        if (sequential) Sums::count_seen(r, s, seen, acc);
        Sums::add_token_sums(plan, r, drops_at_once, s, seen, sequential, acc);
      } else if (drops_at_once) {
        for_each_group<kWidth>(
            s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
              Sums::drop_outside(rule, k, g, t.statistic.vec(k, g), s);
            });
      }
      if (drops_at_once) return;
      fire_outside(rule, s, seen);
    }
    keep_where_condition_holds(rule, s);
    if (adds && !rule.is_sequence && Sums::is_conditional(rule)) {
      acc.count_each(RuleColumnIndex(r, kRuleFired), s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return t.fired.vec(k, g);
                     });
    }
    apply(rule, r, explains, s);
  }

  // Copies sums that were found already. A rule that saw the mask of all saw
  // those tokens; one without a condition fired on all that were outside.
  template <class Drift, class Columns>
  COUNTERWEIGHT_HD static void finish(const Plan& plan, const Drift& drift,
                                      Columns& columns) {
    const bool any = kStats && Lanes::may(kNeedRules);
    const int rules = any ? plan.spec.num_rules : 0;
    for (int r = 0; r < rules; ++r) {
      const RulePlan& rule = plan.rules[r];
      if (!rule.is_sequence && !rule.is_conditional && measures<Lanes>(plan)) {
        const auto& high = columns.count(RuleColumnIndex(r, kRuleHigh));
        const auto& low = columns.count(RuleColumnIndex(r, kRuleLow));
        auto& fired = columns.count(RuleColumnIndex(r, kRuleFired));
        for_each_lane<Columns::kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
          fired.at[i] = high.at[i] + low.at[i];
        });
      }
      const bool sequential = needs<Lanes>(plan, kNeedSequential);
      if (measures<Lanes>(plan) &&
          Sums::extends_drift(plan, rule, sequential)) {
        const float end = rule.clamp.clamp;
        auto& low = columns.low(kExtremumRules + r);
        auto& high = columns.high(kExtremumRules + r);
        const auto& lowest = drift.lowest();
        const auto& highest = drift.highest();
        for_each_lane<Columns::kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
          const float l = lowest.at[i];
          const float h = highest.at[i];
          // Where there are no tokens it stays so. -0 becomes 0.
          const bool seen = l <= h;
          low.at[i] = seen ? clamped(l, end) + 0.0f : l;
          high.at[i] = seen ? clamped(h, end) + 0.0f : h;
        });
      }
      if (sequential) continue;
      columns.count(RuleColumnIndex(r, kRuleSeen)) = drift.tokens();
      if (rule.is_sequence && !rule.is_conditional) {
        columns.count(RuleColumnIndex(r, kRuleFired)) = drift.tokens();
      }
    }
  }

 private:
  COUNTERWEIGHT_HD static bool drops(const RulePlan& rule) {
    return !Lanes::may(kNeedZeroing) || rule.rule.effect == Effect::kDrop;
  }

  COUNTERWEIGHT_HD static float clamped(float x, float end) {
    const float capped = x < end ? x : end;
    return capped > -end ? capped : -end;
  }

  // Replaces the estimator by its running mean; compares in float64.
  COUNTERWEIGHT_HD static void outside_prefix(const RulePlan& rule, State& s,
                                              const TileOf<Lanes>& seen,
                                              PrefixBase& carry) {
    RuleTiles<Lanes>& t = Sums::tiles(s);
    const double lower = rule.rule.lower;
    const double upper = rule.rule.upper;
    const WideVec one = splat_wide(1.0);
    const ExactLogRatio<Lanes> exact(s, Sums::source_of(rule),
                                     rule.rule.token_clamp);
    t.estimate = t.statistic;
    for_each_prefix_mean<Lanes>(
        s.steps, carry,
        [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
          // RATIO's sums hang on the exact difference.
          return rule.is_log_ratio ? exact(k, h) : t.estimate.wide(k, h);
        },
        seen,
        [&](int k, int g, const auto& means) COUNTERWEIGHT_INLINE_LAMBDA {
          t.statistic.set(k, g, narrowed([&](int h) { return means[h]; }));
          t.high.set(k, g, narrowed([&](int h) {
                       return means[h] > upper ? one : WideVec{};
                     }));
          t.low.set(k, g, narrowed([&](int h) {
                      return means[h] < lower ? one : WideVec{};
                    }));
        });
  }

  COUNTERWEIGHT_HD static void fire_outside(const RulePlan& rule, State& s,
                                            const TileOf<Lanes>& seen) {
    RuleTiles<Lanes>& t = Sums::tiles(s);
    const Vec one = splat(1.0f);
    for_each_group<kWidth>(s.steps,
                           [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                             const Vec x = t.statistic.vec(k, g);
                             const Vec high = x > rule.upper ? one : Vec{};
                             const Vec outside = x < rule.lower ? one : high;
                             t.fired.set(k, g, outside * seen.vec(k, g));
                           });
  }

  // Fires the rule on the tokens that outside_prefix marked.
  COUNTERWEIGHT_HD static void fire_marked(State& s,
                                           const TileOf<Lanes>& seen) {
    RuleTiles<Lanes>& t = Sums::tiles(s);
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec outside = t.high.vec(k, g) + t.low.vec(k, g);
          t.fired.set(k, g, outside * seen.vec(k, g));
        });
  }

  COUNTERWEIGHT_HD static void fire_row(State& s, const TileOf<Lanes>& seen) {
    RuleTiles<Lanes>& t = Sums::tiles(s);
    for_each_group<kWidth>(s.steps,
                           [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                             t.fired.set(k, g, seen.vec(k, g));
                           });
  }

  COUNTERWEIGHT_HD static void keep_where_condition_holds(const RulePlan& rule,
                                                          State& s) {
    RuleTiles<Lanes>& t = Sums::tiles(s);
    if (!Sums::is_conditional(rule)) return;
    const TileOf<Lanes>& advantages = s.input[Sums::kAdvantages];
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          t.fired.set(k, g,
                      Sums::where_condition_holds(rule, advantages.vec(k, g),
                                                  t.fired.vec(k, g)));
        });
  }

  COUNTERWEIGHT_HD static void apply(const RulePlan& rule, int r, bool explains,
                                     State& s) {
    RuleTiles<Lanes>& t = Sums::tiles(s);
    TileOf<Lanes>& kept = s.kept;
    TileOf<Lanes>& zeroed = s.zeroed;
    if (drops(rule)) {
      for_each_group<kWidth>(
          s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            const Vec before = kept.vec(k, g);
            kept.set(k, g, t.fired.vec(k, g) != 0.0f ? Vec{} : before);
          });
    } else {
      const Vec one = splat(1.0f);
      for_each_group<kWidth>(
          s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            const Vec before = zeroed.vec(k, g);
            zeroed.set(k, g, t.fired.vec(k, g) != 0.0f ? one : before);
          });
    }
    if (!explains) return;
    const uint32_t bit = uint32_t{1} << r;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      s.reasons.at[k][i] |= t.fired.at[k][i] != 0.0f ? bit : 0u;
    });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_
