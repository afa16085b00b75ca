// Phase 3 of a tile, once per rule: its statistic, what it drops or zeroes, and
// its sums.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_

#include "kernels/walk/prefix.h"
#include "kernels/walk/rule_divergence.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// kStats: add to the columns. kOutput: this is the pass that writes, all
// decisions are known.
template <class Lanes, bool kStats, bool kOutput>
struct RulePhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;

  // explains: reason bits are wanted.
  COUNTERWEIGHT_HD static void run(const Plan& plan, int r, uint32_t row_fired,
                                   bool explains, State& s, Acc& acc) {
    const RulePlan& rule = plan.rules[r];
    const bool sequential = Lanes::may(kFeatureSequential) &&
                            plan.spec.evaluation == Evaluation::kSequential;
    const TileOf<Lanes>& seen = Lanes::choose(sequential, s.left, s.mask);
    // No decision hangs on what token rules add.
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
      if (kStats) add_prefix_aggregate(rule, r, s, seen, sequential, acc);
      if (adds) {
        add_token_sums(plan, r, s, seen, sequential, acc);
        count_marked(r, s, seen, acc);
      }
      fire_marked(s, seen);
    } else {
      evaluate(rule, s);
      if (adds) {
        add_token_sums(plan, r, s, seen, sequential, acc);
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
                       return s.fired.vec(k, g);
                     });
    }
    apply(rule, r, explains, s);
  }

  // Once per segment: what was found already. A rule that saw the mask of all
  // saw those tokens; one without a condition fired on all that were outside.
  template <class Columns>
  COUNTERWEIGHT_HD static void finish(const Plan& plan, Columns& columns) {
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
        const auto& lowest = columns.low(kExtremumLogRatio);
        const auto& highest = columns.high(kExtremumLogRatio);
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
      columns.count(RuleColumnIndex(r, kRuleSeen)) =
          columns.count(kColumnTokens);
      if (rule.is_sequence && !rule.is_conditional) {
        columns.count(RuleColumnIndex(r, kRuleFired)) =
            columns.count(kColumnTokens);
      }
    }
  }

 private:
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
    return rule.rule.aggregation == Aggregation::kToken && !sequential &&
           rule.rule.estimator == Estimator::kRatio &&
           source_of(rule) ==
               Lanes::source(SourceUse::kDrift, plan.spec.drift_source);
  }

  // The estimator of each token.
  COUNTERWEIGHT_HD static void evaluate(const RulePlan& rule, State& s) {
    const int source = static_cast<int>(source_of(rule));
    const TileOf<Lanes>& log_ratio = s.log_ratio[source];
    const ClampTerms c = rule.clamp;
    switch (rule.rule.estimator) {
      case Estimator::kRatio: {
        const Vec end = splat(c.clamp);
        for_each_group<kWidth>(
            s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
              s.statistic.set(k, g, clip(log_ratio.vec(k, g), -end, end));
            });
        break;
      }
      case Estimator::kK2: {
        const Vec end = splat(c.k2);
        for_each_group<kWidth>(
            s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
              const Vec l = log_ratio.vec(k, g);
              s.statistic.set(k, g, least(splat(0.5f) * (l * l), end));
            });
        break;
      }
      case Estimator::kK3: {
        const TileOf<Lanes>& k3s = s.k3[source];
        const Vec high = splat(c.k3_high);
        const Vec low = splat(c.k3_low);
        for_each_group<kWidth>(
            s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
              const Vec end = log_ratio.vec(k, g) > 0.0f ? high : low;
              s.statistic.set(k, g, least(k3s.vec(k, g), end));
            });
        break;
      }
      case Estimator::kBinaryKl:
      case Estimator::kTotalVariation:
        if constexpr (Lanes::may(kFeatureDivergences)) {
          RuleDivergence<Lanes>::run(
              source_of(rule),
              rule.rule.estimator == Estimator::kTotalVariation, s);
        }
        break;
    }
  }

  // The estimator in float64: RATIO as the exact difference, which is what its
  // sums hang on; others as computed.
  COUNTERWEIGHT_HD static WideVec exact(const RulePlan& rule, const State& s,
                                        const TileOf<Lanes>& computed, int k,
                                        int h) {
    if (rule.rule.estimator != Estimator::kRatio) return computed.wide(k, h);
    return exact_log_ratio(s, source_of(rule), rule.rule.token_clamp, k, h);
  }

  // Replaces the estimator by its running mean; compares in float64.
  COUNTERWEIGHT_HD static void outside_prefix(const RulePlan& rule, State& s,
                                              const TileOf<Lanes>& seen,
                                              PrefixBase& carry) {
    const double lower = rule.rule.lower;
    const double upper = rule.rule.upper;
    s.estimate = s.statistic;
    for_each_prefix_mean<Lanes>(
        s.steps, carry,
        [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
          return exact(rule, s, s.estimate, k, h);
        },
        seen,
        [&](int k, int i, double mean) COUNTERWEIGHT_INLINE_LAMBDA {
          s.statistic.at[k][i] = static_cast<float>(mean);
          s.high.at[k][i] = mean > upper ? 1.0f : 0.0f;
          s.low.at[k][i] = mean < lower ? 1.0f : 0.0f;
        });
  }

  // What the row's later segments start from.
  COUNTERWEIGHT_HD static void add_prefix_aggregate(const RulePlan& rule, int r,
                                                    const State& s,
                                                    const TileOf<Lanes>& seen,
                                                    bool sequential, Acc& acc) {
    const int column = RuleColumnIndex(r, kRuleAggregate);
    if (rule.rule.estimator == Estimator::kRatio) {
      add_ratios(rule, column, s, seen, sequential, acc);
      return;
    }
    acc.add_exact(column, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    const WideVec x = s.estimate.wide(k, h);
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
    const float lower = rule.lower;
    const float upper = rule.upper;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = s.statistic.at[k][i];
      const float high = x > upper ? 1.0f : 0.0f;
      const float outside = x < lower ? 1.0f : high;
      s.fired.at[k][i] = outside * seen.at[k][i];
    });
  }

  // fire_outside and apply in one. What the rule does not see is left by none.
  COUNTERWEIGHT_HD static void drop_outside(const RulePlan& rule, State& s) {
    const float lower = rule.lower;
    const float upper = rule.upper;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = s.statistic.at[k][i];
      const float left = x > upper ? 0.0f : s.left.at[k][i];
      s.left.at[k][i] = x < lower ? 0.0f : left;
    });
  }

  // What outside_prefix found.
  COUNTERWEIGHT_HD static void fire_marked(State& s,
                                           const TileOf<Lanes>& seen) {
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float outside = s.high.at[k][i] + s.low.at[k][i];
      s.fired.at[k][i] = outside * seen.at[k][i];
    });
  }

  COUNTERWEIGHT_HD static void fire_row(State& s, const TileOf<Lanes>& seen) {
    for_each_position<kWidth>(
        s.steps, [&](int k, int i) { s.fired.at[k][i] = seen.at[k][i]; });
  }

  COUNTERWEIGHT_HD static void keep_where_condition_holds(const RulePlan& rule,
                                                          State& s) {
    if (!is_conditional(rule)) return;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float fired = s.fired.at[k][i];
      s.fired.at[k][i] = s.input[kAdvantages].at[k][i] < 0.0f ? fired : 0.0f;
    });
  }

  COUNTERWEIGHT_HD static void add_token_sums(const Plan& plan, int r,
                                              const State& s,
                                              const TileOf<Lanes>& seen,
                                              bool sequential, Acc& acc) {
    const RulePlan& rule = plan.rules[r];
    const Vec lowest = splat(static_cast<float>(rule.clamped_lower));
    const Vec highest = splat(static_cast<float>(rule.clamped_upper));
    const int columns[] = {RuleColumnIndex(r, kRuleSum),
                           RuleColumnIndex(r, kRuleClamped),
                           RuleColumnIndex(r, kRuleClampedSquared)};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[3]) COUNTERWEIGHT_INLINE_LAMBDA {
              const auto counts = seen.vec(k, g) != 0.0f;
              const Vec x = s.statistic.vec(k, g);
              const Vec y = clip(x, lowest, highest);
              add_where(counts, x, block[0]);
              add_where(counts, y, block[1]);
              add_where(counts, y * y, block[2]);
            });
    if (sequential) {
      acc.count_each(RuleColumnIndex(r, kRuleSeen), s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return seen.vec(k, g);
                     });
    }
    if (extends_drift(plan, rule, sequential)) return;
    acc.extend(kExtremumRules + r, s.steps, s.statistic, seen);
  }

  COUNTERWEIGHT_HD static void add_sequence_sums(const RulePlan& rule, int r,
                                                 State& s,
                                                 const TileOf<Lanes>& seen,
                                                 bool sequential, Acc& acc) {
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
              add_where(seen.vec(k, g) != 0.0f, s.statistic.vec(k, g),
                        block[0]);
            });
    if (rule.sums) return;
    acc.extend(kExtremumRules + r, s.steps, s.statistic, seen);
    if (rule.rule.aggregation == Aggregation::kAll) {
      count_outside(rule, r, s, seen, acc);
    }
  }

  COUNTERWEIGHT_HD static void count_outside(const RulePlan& rule, int r,
                                             const State& s,
                                             const TileOf<Lanes>& seen,
                                             Acc& acc) {
    const int columns[] = {RuleColumnIndex(r, kRuleHigh),
                           RuleColumnIndex(r, kRuleLow)};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec x = s.statistic.vec(k, g);
                const Vec m = seen.vec(k, g);
                count_where(x > rule.upper, m, block[0]);
                count_where(x < rule.lower, m, block[1]);
              });
  }

  COUNTERWEIGHT_HD static void count_marked(int r, const State& s,
                                            const TileOf<Lanes>& seen,
                                            Acc& acc) {
    const int columns[] = {RuleColumnIndex(r, kRuleHigh),
                           RuleColumnIndex(r, kRuleLow)};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = seen.vec(k, g);
                block[0] += s.high.vec(k, g) * m;
                block[1] += s.low.vec(k, g) * m;
              });
  }

  COUNTERWEIGHT_HD static void apply(const RulePlan& rule, int r, bool explains,
                                     State& s) {
    TileOf<Lanes>& left = s.left;
    TileOf<Lanes>& zeroed = s.zeroed;
    if (drops(rule)) {
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        const float before = left.at[k][i];
        left.at[k][i] = s.fired.at[k][i] != 0.0f ? 0.0f : before;
      });
    } else {
      for_each_position<kWidth>(s.steps, [&](int k, int i) {
        const float before = zeroed.at[k][i];
        zeroed.at[k][i] = s.fired.at[k][i] != 0.0f ? 1.0f : before;
      });
    }
    if (!explains) return;
    const uint32_t bit = uint32_t{1} << r;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      s.reasons.at[k][i] |= s.fired.at[k][i] != 0.0f ? bit : 0u;
    });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_
