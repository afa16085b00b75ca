// How a rejection rule's statistic of a sequence is made of its tokens: one
// struct for each Aggregation. To add one: its struct here, in Aggregations in
// the order of the enum.
#ifndef COUNTERWEIGHT_KERNELS_RULES_AGGREGATIONS_H_
#define COUNTERWEIGHT_KERNELS_RULES_AGGREGATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/math/bits.h"
#include "kernels/math/host_device.h"
#include "kernels/plan/plan.h"
#include "kernels/rules/info.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Comparisons of V, which is double or a vector of them.
template <class V>
using BoolOf = decltype(V{} < V{});

// The sides of its interval on which a row lies.
template <class V>
struct Sides {
  BoolOf<V> high;
  BoolOf<V> low;
};

template <class V>
COUNTERWEIGHT_HD V clamped64(V x, double clamp) {
  const V capped = x > clamp ? spread_wide<V>(clamp) : x;
  return capped < -clamp ? spread_wide<V>(-clamp) : capped;
}

// Defaults of the aggregations. `Row` is a RowOfRule, of a rule that saw tokens
// of the row.
struct AnyAggregation {
  // Token rules: the row's mean, for metrics.
  template <class Row>
  COUNTERWEIGHT_HD static auto statistic(const RejectionRule& /*rule*/,
                                         const Row& row) {
    return row.sum() / row.seen();
  }
  // x is the statistic, 0 for a row that the rule saw empty.
  template <class V, class Row>
  COUNTERWEIGHT_HD static Sides<V> sides(const RulePlan& rule, V x,
                                         const Row& /*row*/) {
    return {x > rule.rule.upper, x < rule.rule.lower};
  }
};

struct TokenAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kToken;
  static constexpr AggregationInfo kInfo = {"token"};
};

struct SumAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kSum;
  static constexpr AggregationInfo kInfo = {
      "sum", kAggregatesSequence | kAggregatesSum};

  template <class Row>
  COUNTERWEIGHT_HD static auto statistic(const RejectionRule& rule,
                                         const Row& row) {
    return clamped64(row.sum(), rule.aggregate_clamp);
  }
};

struct MeanAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kMean;
  static constexpr AggregationInfo kInfo = {
      "mean", kAggregatesSequence | kAggregatesSum};

  template <class Row>
  COUNTERWEIGHT_HD static auto statistic(const RejectionRule& rule,
                                         const Row& row) {
    return clamped64(row.sum() / row.seen(), rule.aggregate_clamp);
  }
};

struct MaxAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kMax;
  static constexpr AggregationInfo kInfo = {"max", kAggregatesSequence};

  template <class Row>
  COUNTERWEIGHT_HD static auto statistic(const RejectionRule& /*rule*/,
                                         const Row& row) {
    return row.most();
  }
  // x is a float32 and compares with bounds that are.
  template <class V, class Row>
  COUNTERWEIGHT_HD static Sides<V> sides(const RulePlan& rule, V x,
                                         const Row& /*row*/) {
    return {x > static_cast<double>(rule.upper),
            x < static_cast<double>(rule.lower)};
  }
};

// Every token inside; the statistic is the mean, for metrics.
struct AllAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kAll;
  static constexpr AggregationInfo kInfo = {
      "all", kAggregatesSequence | kAggregatesCounts};

  template <class V, class Row>
  COUNTERWEIGHT_HD static Sides<V> sides(const RulePlan& /*rule*/, V /*x*/,
                                         const Row& row) {
    return {row.above() > 0.0, row.below() > 0.0};
  }
};

struct PrefixMeanAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kPrefixMean;
  static constexpr AggregationInfo kInfo = {"prefix_mean", kAggregatesPrefix};
};

// A rule of tokens by the time a plan is made (WithTurnMeans).
struct TurnMeanAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kTurnMean;
  static constexpr AggregationInfo kInfo = {"turn_mean", kAggregatesTurn};
};

template <class... A>
struct AggregationList {
  static constexpr size_t kSize = sizeof...(A);
  static constexpr AggregationInfo kInfos[] = {A::kInfo...};

  static constexpr bool IsInOrder() {
    uint32_t next = 0;
    return ((static_cast<uint32_t>(A::kAggregation) == next++) && ...);
  }
};

using Aggregations =
    AggregationList<TokenAggregation, SumAggregation, MeanAggregation,
                    MaxAggregation, AllAggregation, PrefixMeanAggregation,
                    TurnMeanAggregation>;
static_assert(Aggregations::IsInOrder());
static_assert(static_cast<size_t>(Aggregation::kLast) + 1 ==
                  Aggregations::kSize,
              "an aggregation without a struct");

constexpr AggregationInfo InfoOf(Aggregation aggregation) {
  return Aggregations::kInfos[static_cast<size_t>(aggregation)];
}

// f(A{}) for the struct A of `aggregation`.
template <class F, class... A>
COUNTERWEIGHT_HD void with_aggregation(AggregationList<A...>,
                                       Aggregation aggregation, F f) {
  const auto visit = [&](auto candidate) COUNTERWEIGHT_INLINE_LAMBDA {
    if (aggregation == decltype(candidate)::kAggregation) f(candidate);
  };
  (visit(A{}), ...);
}
template <class F>
COUNTERWEIGHT_HD void with_aggregation(Aggregation aggregation, F f) {
  with_aggregation(Aggregations{}, aggregation, f);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_RULES_AGGREGATIONS_H_
