// The statistic of a rule at each token, and what a rule adds to the columns.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RULE_SUMS_H_
#define COUNTERWEIGHT_KERNELS_WALK_RULE_SUMS_H_

#include "kernels/rules/estimators.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/exact_log_ratio.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct RuleSums {
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

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
    return Lanes::may(kNeedConditions) && rule.is_conditional;
  }

  // `fired`, 0 or 1, where the advantage a meets the rule's condition.
  // REQUIRES: is_conditional(rule).
  COUNTERWEIGHT_HD static Vec where_condition_holds(const RulePlan& rule, Vec a,
                                                    Vec fired) {
    const Condition condition = rule.rule.condition;
    if (condition == Condition::kNegativeAdvantage) {
      return a < 0.0f ? fired : Vec{};
    }
    const Vec where_positive = a > 0.0f ? fired : Vec{};
    return condition == Condition::kPositiveAdvantage ? where_positive
                                                      : fired - where_positive;
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

  // Adds the sums that the row's later segments start from.
  COUNTERWEIGHT_HD static void add_prefix_aggregate(const Plan& plan, int r,
                                                    const State& s,
                                                    const TileOf<Lanes>& seen,
                                                    bool sequential, Acc& acc) {
    const RulePlan& rule = plan.rules[r];
    const RuleTiles<Lanes>& t = tiles(s);
    const int column = RuleColumnIndex(r, kRuleAggregate);
    if (rule.is_log_ratio) {
      add_ratios(plan, rule, column, s, seen, sequential, acc);
      return;
    }
    acc.add_exact(column, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    const WideVec x = t.estimate.wide(k, h);
                    return seen.wide(k, h) != 0.0 ? x : WideVec{};
                  });
  }

  COUNTERWEIGHT_HD static void add_ratios(const Plan& plan,
                                          const RulePlan& rule, int column,
                                          const State& s,
                                          const TileOf<Lanes>& seen,
                                          bool sequential, Acc& acc) {
    const RatioSource source = source_of(rule);
    add_exact_log_ratios(s, source, rule.rule.token_clamp, seen, !sequential,
                         measures_drift_of<Lanes>(plan, source), column, acc);
  }

  // drops: takes the tokens outside out of s.kept.
  COUNTERWEIGHT_HD static void add_token_sums(const Plan& plan, int r,
                                              bool drops, State& s,
                                              const TileOf<Lanes>& seen,
                                              bool sequential, Acc& acc) {
    const RulePlan& rule = plan.rules[r];
    if (needs<Lanes>(plan, kNeedPeerSums)) {
      add_clamped_sums(rule, r, s, seen, acc);
    }
    if (extends_drift(plan, rule, sequential)) {
      collect<true, false>(rule, r, drops, s, seen, acc);
    } else if (Lanes::may(kNeedPrefixes) && rule.prefix >= 0) {
      // The sides of running means are marked: count_marked().
      collect<false, true>(rule, r, drops, s, seen, acc);
    } else {
      collect<true, true>(rule, r, drops, s, seen, acc);
    }
  }

  // Keeps a token where the statistic x is inside. What the rule does not see
  // is left by none.
  COUNTERWEIGHT_HD static void drop_outside(const RulePlan& rule, int k, int g,
                                            Vec x, State& s) {
    const Vec kept = x > rule.upper ? Vec{} : s.kept.vec(k, g);
    s.kept.set(k, g, x < rule.lower ? Vec{} : kept);
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
    const auto bound = [](double x) COUNTERWEIGHT_INLINE_LAMBDA {
      return splat_wide(static_cast<double>(static_cast<float>(x)));
    };
    const WideVec lowest = bound(rule.clamped_lower);
    const WideVec highest = bound(rule.clamped_upper);
    acc.add_exact_squares(RuleColumnIndex(r, kRuleClamped),
                          RuleColumnIndex(r, kRuleClampedSquared), s.steps,
                          [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                            const WideVec x = t.statistic.wide(k, h);
                            const WideVec capped = x > highest ? highest : x;
                            const WideVec y = capped < lowest ? lowest : capped;
                            return seen.wide(k, h) != 0.0 ? y : WideVec{};
                          });
  }

  COUNTERWEIGHT_HD static void add_sequence_sums(const Plan& plan, int r,
                                                 State& s,
                                                 const TileOf<Lanes>& seen,
                                                 bool sequential, Acc& acc) {
    const RulePlan& rule = plan.rules[r];
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
                       return where_condition_holds(rule, advantages.vec(k, g),
                                                    seen.vec(k, g));
                     });
    }
    const int sum_column = RuleColumnIndex(r, kRuleSum);
    if (rule.sums_ratios) {
      add_ratios(plan, rule, sum_column, s, seen, sequential, acc);
      return;
    }
    evaluate(rule, s);
    if (rule.sums) {
      collect<false, false>(rule, r, false, s, seen, acc);
    } else if (rule.counts) {
      collect<true, true>(rule, r, false, s, seen, acc);
    } else {
      collect<false, true>(rule, r, false, s, seen, acc);
    }
  }

  // Adds the statistic of the tokens that the rule sees.
  template <bool kCounts, bool kExtends>
  COUNTERWEIGHT_HD static void collect(const RulePlan& rule, int r, bool drops,
                                       State& s, const TileOf<Lanes>& seen,
                                       Acc& acc) {
    const RuleTiles<Lanes>& t = tiles(s);
    constexpr int kSides = kCounts ? 2 : 0;
    PassColumns<1, kSides> columns = {
        {RuleColumnIndex(r, kRuleSum)}, {}, kExtends ? kExtremumRules + r : -1};
    if constexpr (kCounts) {
      columns.counts[0] = RuleColumnIndex(r, kRuleHigh);
      columns.counts[1] = RuleColumnIndex(r, kRuleLow);
    }
    acc.collect(columns, s.steps,
                [&](int k, int g, auto& to) COUNTERWEIGHT_INLINE_LAMBDA {
                  const Vec x = t.statistic.vec(k, g);
                  const Vec m = seen.vec(k, g);
                  const auto counts = m != 0.0f;
                  add_where(counts, x, to.sum[0]);
                  if constexpr (kCounts) {
                    count_where(x > rule.upper, m, to.count[0]);
                    count_where(x < rule.lower, m, to.count[1]);
                  }
                  if constexpr (kExtends) to.extend_where(counts, x);
                  if (drops) drop_outside(rule, k, g, x, s);
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
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RULE_SUMS_H_
