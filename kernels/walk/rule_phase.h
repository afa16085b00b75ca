// Phase 3 of a tile, once per rule: its statistic, what it drops or zeroes, and
// its sums.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_

#include "kernels/rules/estimators.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/prefix.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// kStats: add to the columns. kOutput: this is the pass that writes, all
// decisions are known.
template <class Lanes, bool kStats, bool kOutput>
struct RulePhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;

  // explains: true if reason bits are wanted.
  COUNTERWEIGHT_HD static void run(const Plan& plan, int r, uint32_t row_fired,
                                   bool explains, State& s, Acc& acc) {
    RuleTiles<Lanes>& t = s.tiles.template begin<RuleTiles<Lanes>>();
    const RulePlan& rule = plan.rules[r];
    const bool sequential = Lanes::may(kFeatureSequential) &&
                            plan.spec.evaluation == Evaluation::kSequential;
    const TileOf<Lanes>& seen = Lanes::choose(sequential, s.kept, s.mask);
    // No decision depends on the sums of token rules.
    const bool adds = kStats && measures<Lanes>(plan);
    if (rule.is_sequence) {
      if (kStats) {
        add_sequence_sums(rule, r, s, seen, sequential, acc);
      }
      const bool applies = kOutput || rule.hits_in_statistics;
      if (!applies || (row_fired >> r & 1u) == 0) return;
      fire_row(s, seen);
    } else if (Lanes::may(kFeaturePrefixes) && rule.prefix >= 0) {
      evaluate(rule, s);
      outside_prefix(rule, s, seen, acc.carry[rule.prefix]);
      if (kStats) {
        add_prefix_aggregate(rule, r, s, seen, sequential, acc);
        if (sequential) count_seen(r, s, seen, acc);
      }
      if (adds) {
        add_token_sums(plan, r, s, seen, sequential, acc);
        count_marked(r, s, seen, acc);
      }
      fire_marked(s, seen);
    } else {
      evaluate(rule, s);
      if (adds) {
        add_token_sums(plan, r, s, seen, sequential, acc);
        if (sequential) count_seen(r, s, seen, acc);
        count_outside(rule, r, s, seen, acc);
      }
      if (drops(rule) && !is_conditional(rule) && !explains) {
        drop_outside(rule, s);
        return;
      }
      fire_outside(rule, s, seen);
    }
    keep_where_condition_holds(rule, s);
    if (adds && !rule.is_sequence && is_conditional(rule)) {
      acc.count_each(RuleColumnIndex(r, kRuleFired), s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return t.fired.vec(k, g);
                     });
    }
    apply(rule, r, explains, s);
  }

  // Copies sums that were found already; once per segment. A rule that saw the
  // mask of all saw those tokens; one without a condition fired on all that
  // were outside.
  template <class Drift, class Columns>
  COUNTERWEIGHT_HD static void finish(const Plan& plan, const Drift& drift,
                                      Columns& columns) {
    const bool any = kStats && Lanes::may(kFeatureRules);
    const int rules = any ? plan.spec.num_rules : 0;
    for (int r = 0; r < rules; ++r) {
      const RulePlan& rule = plan.rules[r];
      if (!rule.is_sequence && !rule.is_conditional && measures<Lanes>(plan)) {
        const auto& high = columns.count(RuleColumnIndex(r, kRuleHigh));
        const auto& low = columns.count(RuleColumnIndex(r, kRuleLow));
        auto& fired = columns.count(RuleColumnIndex(r, kRuleFired));
        for_each_lane<kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
          fired.at[i] = high.at[i] + low.at[i];
        });
      }
      const bool sequential = plan.spec.evaluation == Evaluation::kSequential;
      if (measures<Lanes>(plan) && extends_drift(plan, rule, sequential)) {
        const float end = rule.clamp.clamp;
        auto& low = columns.low(kExtremumRules + r);
        auto& high = columns.high(kExtremumRules + r);
        const auto& lowest = drift.lowest();
        const auto& highest = drift.highest();
        for_each_lane<kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
          const float l = lowest.at[i];
          const float h = highest.at[i];
          // A lane without tokens stays without.
          const bool seen = l <= h;
          low.at[i] = seen ? clamped(l, end) : l;
          high.at[i] = seen ? clamped(h, end) : h;
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
  COUNTERWEIGHT_HD static RuleTiles<Lanes>& tiles(State& s) {
    return s.tiles.template get<RuleTiles<Lanes>>();
  }
  COUNTERWEIGHT_HD static const RuleTiles<Lanes>& tiles(const State& s) {
    return s.tiles.template get<RuleTiles<Lanes>>();
  }

  COUNTERWEIGHT_HD static RatioSource source_of(const RulePlan& rule) {
    return Lanes::source(SourceUse::kCorrection, rule.rule.source);
  }

  COUNTERWEIGHT_HD static bool is_conditional(const RulePlan& rule) {
    return Lanes::may(kFeatureConditions) && rule.is_conditional;
  }

  COUNTERWEIGHT_HD static bool drops(const RulePlan& rule) {
    return !Lanes::may(kFeatureZeroing) || rule.rule.effect == Effect::kDrop;
  }

  COUNTERWEIGHT_HD static float clamped(float x, float end) {
    const float capped = x < end ? x : end;
    return capped > -end ? capped : -end;
  }

  // The statistic is the drift's log ratio, clamped, over the same tokens, and
  // so its extrema are theirs, clamped.
  COUNTERWEIGHT_HD static bool extends_drift(const Plan& plan,
                                             const RulePlan& rule,
                                             bool sequential) {
    return !rule.is_sequence && rule.prefix < 0 && !sequential &&
           rule.is_log_ratio &&
           source_of(rule) ==
               Lanes::source(SourceUse::kDrift, plan.spec.drift_source);
  }

  // The estimator of each token.
  COUNTERWEIGHT_HD static void evaluate(const RulePlan& rule, State& s) {
    with_estimator<Lanes>(
        rule.rule.estimator, [&](auto estimator) COUNTERWEIGHT_INLINE_LAMBDA {
          estimator.evaluate(rule.clamp, source_of(rule), s, tiles(s));
        });
  }

  // The estimator in float64: RATIO as the exact difference, which is what its
  // sums hang on; others as computed.
  COUNTERWEIGHT_HD static WideVec exact(const RulePlan& rule, const State& s,
                                        const TileOf<Lanes>& computed, int k,
                                        int h) {
    if (!rule.is_log_ratio) return computed.wide(k, h);
    return exact_log_ratio(s, source_of(rule), rule.rule.token_clamp, k, h);
  }

  // Replaces the estimator by its running mean; compares in float64.
  COUNTERWEIGHT_HD static void outside_prefix(const RulePlan& rule, State& s,
                                              const TileOf<Lanes>& seen,
                                              PrefixBase& carry) {
    RuleTiles<Lanes>& t = tiles(s);
    const double lower = rule.rule.lower;
    const double upper = rule.rule.upper;
    t.estimate = t.statistic;
    for_each_prefix_mean<Lanes>(
        s.steps, carry,
        [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
          return exact(rule, s, t.estimate, k, h);
        },
        seen,
        [&](int k, int i, double mean) COUNTERWEIGHT_INLINE_LAMBDA {
          t.statistic.at[k][i] = static_cast<float>(mean);
          t.high.at[k][i] = mean > upper ? 1.0f : 0.0f;
          t.low.at[k][i] = mean < lower ? 1.0f : 0.0f;
        });
  }

  // Adds the sums that the row's later segments start from.
  COUNTERWEIGHT_HD static void add_prefix_aggregate(const RulePlan& rule, int r,
                                                    const State& s,
                                                    const TileOf<Lanes>& seen,
                                                    bool sequential, Acc& acc) {
    const RuleTiles<Lanes>& t = tiles(s);
    const int column = RuleColumnIndex(r, kRuleAggregate);
    if (rule.is_log_ratio) {
      add_ratios(rule, column, s, seen, sequential, acc);
      return;
    }
    acc.add_exact(column, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    const WideVec x = t.estimate.wide(k, h);
                    return seen.wide(k, h) != 0.0 ? x : WideVec{};
                  });
  }

  COUNTERWEIGHT_HD static void add_ratios(const RulePlan& rule, int column,
                                          const State& s,
                                          const TileOf<Lanes>& seen,
                                          bool sequential, Acc& acc) {
    add_exact_log_ratios(s, source_of(rule), rule.rule.token_clamp, seen,
                         !sequential, column, acc);
  }

  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

  COUNTERWEIGHT_HD static void fire_outside(const RulePlan& rule, State& s,
                                            const TileOf<Lanes>& seen) {
    RuleTiles<Lanes>& t = tiles(s);
    const float lower = rule.lower;
    const float upper = rule.upper;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = t.statistic.at[k][i];
      const float high = x > upper ? 1.0f : 0.0f;
      const float outside = x < lower ? 1.0f : high;
      t.fired.at[k][i] = outside * seen.at[k][i];
    });
  }

  // fire_outside and apply in one. What the rule does not see is left by none.
  COUNTERWEIGHT_HD static void drop_outside(const RulePlan& rule, State& s) {
    RuleTiles<Lanes>& t = tiles(s);
    const float lower = rule.lower;
    const float upper = rule.upper;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = t.statistic.at[k][i];
      const float kept = x > upper ? 0.0f : s.kept.at[k][i];
      s.kept.at[k][i] = x < lower ? 0.0f : kept;
    });
  }

  // Fires the rule on the tokens that outside_prefix marked.
  COUNTERWEIGHT_HD static void fire_marked(State& s,
                                           const TileOf<Lanes>& seen) {
    RuleTiles<Lanes>& t = tiles(s);
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float outside = t.high.at[k][i] + t.low.at[k][i];
      t.fired.at[k][i] = outside * seen.at[k][i];
    });
  }

  COUNTERWEIGHT_HD static void fire_row(State& s, const TileOf<Lanes>& seen) {
    RuleTiles<Lanes>& t = tiles(s);
    for_each_position<kWidth>(
        s.steps, [&](int k, int i) { t.fired.at[k][i] = seen.at[k][i]; });
  }

  COUNTERWEIGHT_HD static void keep_where_condition_holds(const RulePlan& rule,
                                                          State& s) {
    RuleTiles<Lanes>& t = tiles(s);
    if (!is_conditional(rule)) return;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float fired = t.fired.at[k][i];
      t.fired.at[k][i] = s.input[kAdvantages].at[k][i] < 0.0f ? fired : 0.0f;
    });
  }

  COUNTERWEIGHT_HD static void add_token_sums(const Plan& plan, int r,
                                              const State& s,
                                              const TileOf<Lanes>& seen,
                                              bool sequential, Acc& acc) {
    const RuleTiles<Lanes>& t = tiles(s);
    const RulePlan& rule = plan.rules[r];
    const int columns[] = {RuleColumnIndex(r, kRuleSum)};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[1]) COUNTERWEIGHT_INLINE_LAMBDA {
              add_where(seen.vec(k, g) != 0.0f, t.statistic.vec(k, g),
                        block[0]);
            });
    if (Lanes::may(kFeaturePeerCorrection) && plan.spec.peer_sums) {
      add_clamped_sums(rule, r, s, seen, acc);
    }
    if (extends_drift(plan, rule, sequential)) return;
    acc.extend(kExtremumRules + r, s.steps, t.statistic, seen);
  }

  // Not only a metric: running means of later segments divide by it.
  COUNTERWEIGHT_HD static void count_seen(int r, const State& s,
                                          const TileOf<Lanes>& seen, Acc& acc) {
    acc.count_each(RuleColumnIndex(r, kRuleSeen), s.steps,
                   [&](int k, int g)
                       COUNTERWEIGHT_INLINE_LAMBDA { return seen.vec(k, g); });
  }

  COUNTERWEIGHT_HD static void add_clamped_sums(const RulePlan& rule, int r,
                                                const State& s,
                                                const TileOf<Lanes>& seen,
                                                Acc& acc) {
    const RuleTiles<Lanes>& t = tiles(s);
    const Vec lowest = splat(static_cast<float>(rule.clamped_lower));
    const Vec highest = splat(static_cast<float>(rule.clamped_upper));
    const int columns[] = {RuleColumnIndex(r, kRuleClamped),
                           RuleColumnIndex(r, kRuleClampedSquared)};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
              const auto counts = seen.vec(k, g) != 0.0f;
              const Vec y = clip(t.statistic.vec(k, g), lowest, highest);
              add_where(counts, y, block[0]);
              add_where(counts, y * y, block[1]);
            });
  }

  COUNTERWEIGHT_HD static void add_sequence_sums(const RulePlan& rule, int r,
                                                 State& s,
                                                 const TileOf<Lanes>& seen,
                                                 bool sequential, Acc& acc) {
    RuleTiles<Lanes>& t = tiles(s);
    if (sequential) {
      const int columns[] = {RuleColumnIndex(r, kRuleSeen),
                             RuleColumnIndex(r, kRuleFired)};
      acc.count(columns, s.steps,
                [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                  block[0] += seen.vec(k, g);
                  block[1] += rule.is_conditional ? Vec{} : seen.vec(k, g);
                });
    }
    const TileOf<Lanes>& advantages = s.input[kAdvantages];
    if (is_conditional(rule)) {
      acc.count_each(RuleColumnIndex(r, kRuleFired), s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return advantages.vec(k, g) < 0.0f ? seen.vec(k, g)
                                                          : Vec{};
                     });
    }
    const int sum_column = RuleColumnIndex(r, kRuleSum);
    if (rule.sums_ratios) {
      add_ratios(rule, sum_column, s, seen, sequential, acc);
      return;
    }
    evaluate(rule, s);
    const int columns[] = {sum_column};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[1]) COUNTERWEIGHT_INLINE_LAMBDA {
              add_where(seen.vec(k, g) != 0.0f, t.statistic.vec(k, g),
                        block[0]);
            });
    if (rule.sums) return;
    acc.extend(kExtremumRules + r, s.steps, t.statistic, seen);
    if (rule.counts) {
      count_outside(rule, r, s, seen, acc);
    }
  }

  COUNTERWEIGHT_HD static void count_outside(const RulePlan& rule, int r,
                                             const State& s,
                                             const TileOf<Lanes>& seen,
                                             Acc& acc) {
    const RuleTiles<Lanes>& t = tiles(s);
    const int columns[] = {RuleColumnIndex(r, kRuleHigh),
                           RuleColumnIndex(r, kRuleLow)};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec x = t.statistic.vec(k, g);
                const Vec m = seen.vec(k, g);
                count_where(x > rule.upper, m, block[0]);
                count_where(x < rule.lower, m, block[1]);
              });
  }

  COUNTERWEIGHT_HD static void count_marked(int r, const State& s,
                                            const TileOf<Lanes>& seen,
                                            Acc& acc) {
    const RuleTiles<Lanes>& t = tiles(s);
    const int columns[] = {RuleColumnIndex(r, kRuleHigh),
                           RuleColumnIndex(r, kRuleLow)};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = seen.vec(k, g);
                block[0] += t.high.vec(k, g) * m;
                block[1] += t.low.vec(k, g) * m;
              });
  }

  COUNTERWEIGHT_HD static void apply(const RulePlan& rule, int r, bool explains,
                                     State& s) {
    RuleTiles<Lanes>& t = tiles(s);
    TileOf<Lanes>& kept = s.kept;
    TileOf<Lanes>& zeroed = s.zeroed;
    if (drops(rule)) {
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        const float before = kept.at[k][i];
        kept.at[k][i] = t.fired.at[k][i] != 0.0f ? 0.0f : before;
      });
    } else {
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        const float before = zeroed.at[k][i];
        zeroed.at[k][i] = t.fired.at[k][i] != 0.0f ? 1.0f : before;
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
