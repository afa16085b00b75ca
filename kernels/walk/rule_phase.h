// Phase 3 of a tile, once per rule: its statistic, what it drops or zeroes, and
// its sums.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RULE_PHASE_H_

#include "kernels/walk/prefix.h"
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
        evaluate(rule, s);
        add_sequence_sums(rule, r, s, seen, sequential, acc);
      }
      const bool applies = kOutput || rule.hits_in_statistics;
      if (!applies || (row_fired >> r & 1u) == 0) return;
      fire_row(s, seen);
    } else if (Lanes::may(kFeaturePrefixes) && rule.prefix >= 0) {
      evaluate(rule, s);
      outside_prefix(rule, s, seen, acc.carry[rule.prefix]);
      if (kStats) add_prefix_aggregate(rule, r, s, seen, acc);
      if (adds) add_token_sums(rule, r, s, seen, sequential, acc);
      fire_tokens(s, seen);
    } else {
      evaluate(rule, s);
      outside_token(rule, s);
      if (adds) add_token_sums(rule, r, s, seen, sequential, acc);
      fire_tokens(s, seen);
    }
    keep_where_condition_holds(rule, s);
    if (adds && !rule.is_sequence) {
      acc.count_each(RuleColumnIndex(r, kRuleFired), s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return s.fired.vec(k, g);
                     });
    }
    apply(rule, r, explains, s);
  }

  // Once per segment: a rule that saw the mask of all saw what was counted
  // already.
  template <class Columns>
  COUNTERWEIGHT_HD static void finish(const Plan& plan, Columns& columns) {
    if constexpr (!kStats || !Lanes::may(kFeatureRules)) return;
    if (plan.spec.evaluation == Evaluation::kSequential) return;
    for (int r = 0; r < plan.spec.num_rules; ++r) {
      const RulePlan& rule = plan.rules[r];
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

  // The estimator of each token, from the clamped log ratio.
  COUNTERWEIGHT_HD static void evaluate(const RulePlan& rule, State& s) {
    const int source = static_cast<int>(source_of(rule));
    const TileOf<Lanes>& log_ratio = s.log_ratio[source];
    const ClampTerms c = rule.clamp;
    switch (rule.rule.estimator) {
      case Estimator::kRatio:
        for_each_position<kWidth>(s.steps, [&](int k, int i) {
          float l = log_ratio.at[k][i];
          l = l > c.clamp ? c.clamp : l;
          s.statistic.at[k][i] = l < -c.clamp ? -c.clamp : l;
        });
        break;
      case Estimator::kK2:
        for_each_position<kWidth>(s.steps, [&](int k, int i) {
          const float l = log_ratio.at[k][i];
          const float k2 = 0.5f * (l * l);
          s.statistic.at[k][i] = k2 < c.k2 ? k2 : c.k2;
        });
        break;
      case Estimator::kK3: {
        const TileOf<Lanes>& k3s = s.k3[source];
        for_each_position<kWidth>(s.steps, [&](int k, int i) {
          const float l = log_ratio.at[k][i];
          const float k3 = k3s.at[k][i];
          const float end = l > 0.0f ? c.k3_high : c.k3_low;
          s.statistic.at[k][i] = k3 < end ? k3 : end;
        });
        break;
      }
    }
  }

  COUNTERWEIGHT_HD static void outside_token(const RulePlan& rule, State& s) {
    const float lower = rule.lower;
    const float upper = rule.upper;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = s.statistic.at[k][i];
      s.high.at[k][i] = x > upper ? 1.0f : 0.0f;
      s.low.at[k][i] = x < lower ? 1.0f : 0.0f;
    });
  }

  // The estimator in float64: RATIO as the exact difference, which is what its
  // sums hang on; K2 and K3 as computed.
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
                                                    Acc& acc) {
    add_seen(rule, RuleColumnIndex(r, kRuleAggregate), s, s.estimate, seen,
             acc);
  }

  COUNTERWEIGHT_HD static void add_seen(const RulePlan& rule, int column,
                                        const State& s,
                                        const TileOf<Lanes>& computed,
                                        const TileOf<Lanes>& seen, Acc& acc) {
    acc.add_exact(column, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    const WideVec x = exact(rule, s, computed, k, h);
                    return seen.wide(k, h) != 0.0 ? x : WideVec{};
                  });
  }

  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

  COUNTERWEIGHT_HD static void fire_tokens(State& s,
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

  COUNTERWEIGHT_HD static void add_token_sums(const RulePlan& rule, int r,
                                              const State& s,
                                              const TileOf<Lanes>& seen,
                                              bool sequential, Acc& acc) {
    const Vec lowest = splat(static_cast<float>(rule.clamped_lower));
    const Vec highest = splat(static_cast<float>(rule.clamped_upper));
    const int columns[] = {RuleColumnIndex(r, kRuleSum),
                           RuleColumnIndex(r, kRuleClamped),
                           RuleColumnIndex(r, kRuleClampedSquared)};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[3]) COUNTERWEIGHT_INLINE_LAMBDA {
              const Vec m = seen.vec(k, g);
              const Vec x = m != 0.0f ? s.statistic.vec(k, g) : Vec{};
              const Vec capped = x > highest ? highest : x;
              const Vec clamped = capped < lowest ? lowest : capped;
              const Vec y = m != 0.0f ? clamped : Vec{};
              block[0] += x;
              block[1] += y;
              block[2] += y * y;
            });
    const int counts[] = {RuleColumnIndex(r, kRuleHigh),
                          RuleColumnIndex(r, kRuleLow)};
    acc.count(counts, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec m = seen.vec(k, g);
                block[0] += s.high.vec(k, g) * m;
                block[1] += s.low.vec(k, g) * m;
              });
    if (sequential) {
      acc.count_each(RuleColumnIndex(r, kRuleSeen), s.steps,
                     [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                       return seen.vec(k, g);
                     });
    }
    acc.extend(kExtremumRules + r, s.steps, s.statistic, seen);
  }

  COUNTERWEIGHT_HD static void add_sequence_sums(const RulePlan& rule, int r,
                                                 const State& s,
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
    const bool sums = rule.rule.aggregation == Aggregation::kSum ||
                      rule.rule.aggregation == Aggregation::kMean;
    if (sums && rule.rule.estimator == Estimator::kRatio) {
      add_seen(rule, sum_column, s, s.statistic, seen, acc);
    } else {
      acc.add_each(
          sum_column, s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            return seen.vec(k, g) != 0.0f ? s.statistic.vec(k, g) : Vec{};
          });
    }
    if (!sums) {
      acc.extend(kExtremumRules + r, s.steps, s.statistic, seen);
    }
    if (rule.rule.aggregation == Aggregation::kAll) {
      const int columns[] = {RuleColumnIndex(r, kRuleHigh),
                             RuleColumnIndex(r, kRuleLow)};
      acc.count(columns, s.steps,
                [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                  const Vec x = s.statistic.vec(k, g);
                  const Vec m = seen.vec(k, g);
                  block[0] += x > rule.upper ? m : Vec{};
                  block[1] += x < rule.lower ? m : Vec{};
                });
    }
  }

  COUNTERWEIGHT_HD static void apply(const RulePlan& rule, int r, bool explains,
                                     State& s) {
    const bool drops =
        !Lanes::may(kFeatureZeroing) || rule.rule.effect == Effect::kDrop;
    TileOf<Lanes>& left = s.left;
    TileOf<Lanes>& zeroed = s.zeroed;
    if (drops) {
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
