// How a rejection rule's statistic of a sequence is made of its tokens: one
// struct for each Aggregation. To add one: its struct here, in Aggregations in
// the order of the enum.
#ifndef COUNTERWEIGHT_KERNELS_RULES_AGGREGATIONS_H_
#define COUNTERWEIGHT_KERNELS_RULES_AGGREGATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/rules/info.h"
#include "kernels/walk/plan.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The sums of a rule over the tokens of a row that it saw; seen > 0.
struct RowOfRule {
  double seen;
  double sum;    // of the estimator
  float most;    // of the estimator
  double above;  // tokens outside the interval; kAggregatesCounts only
  double below;
};

// The sides of its interval on which a row lies.
struct Sides {
  bool high;
  bool low;
};

COUNTERWEIGHT_HD double clamped64(double x, double clamp) {
  const double capped = x > clamp ? clamp : x;
  return capped < -clamp ? -clamp : capped;
}

// Defaults of the aggregations.
struct AnyAggregation {
  // Token rules: the row's mean, for metrics.
  COUNTERWEIGHT_HD static double statistic(const RejectionRule& /*rule*/,
                                           const RowOfRule& row) {
    return row.sum / row.seen;
  }
  // x is the statistic, 0 for a row that the rule saw empty.
  COUNTERWEIGHT_HD static Sides sides(const RulePlan& rule, double x,
                                      const RowOfRule& /*row*/) {
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

  COUNTERWEIGHT_HD static double statistic(const RejectionRule& rule,
                                           const RowOfRule& row) {
    return clamped64(row.sum, rule.aggregate_clamp);
  }
};

struct MeanAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kMean;
  static constexpr AggregationInfo kInfo = {
      "mean", kAggregatesSequence | kAggregatesSum};

  COUNTERWEIGHT_HD static double statistic(const RejectionRule& rule,
                                           const RowOfRule& row) {
    return clamped64(row.sum / row.seen, rule.aggregate_clamp);
  }
};

struct MaxAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kMax;
  static constexpr AggregationInfo kInfo = {"max", kAggregatesSequence};

  COUNTERWEIGHT_HD static double statistic(const RejectionRule& /*rule*/,
                                           const RowOfRule& row) {
    return static_cast<double>(row.most);
  }
  COUNTERWEIGHT_HD static Sides sides(const RulePlan& rule, double x,
                                      const RowOfRule& /*row*/) {
    return {static_cast<float>(x) > rule.upper,
            static_cast<float>(x) < rule.lower};
  }
};

// Every token inside; the statistic is the mean, for metrics.
struct AllAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kAll;
  static constexpr AggregationInfo kInfo = {
      "all", kAggregatesSequence | kAggregatesCounts};

  COUNTERWEIGHT_HD static Sides sides(const RulePlan& /*rule*/, double /*x*/,
                                      const RowOfRule& row) {
    return {row.above > 0.0, row.below > 0.0};
  }
};

struct PrefixMeanAggregation : AnyAggregation {
  static constexpr Aggregation kAggregation = Aggregation::kPrefixMean;
  static constexpr AggregationInfo kInfo = {"prefix_mean", kAggregatesPrefix};
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
                    MaxAggregation, AllAggregation, PrefixMeanAggregation>;
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
