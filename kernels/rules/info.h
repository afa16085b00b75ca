// Facts about estimators and aggregations that do not depend on a batch. Each
// struct in this folder has its own as kInfo; names, validation, plans and the
// codec derive from them.
#ifndef COUNTERWEIGHT_KERNELS_RULES_INFO_H_
#define COUNTERWEIGHT_KERNELS_RULES_INFO_H_

#include <cstdint>

namespace counterweight::kernels {

enum EstimatorTrait : uint32_t {
  // The statistic is the log ratio itself: of either sign, summed exactly,
  // bounded by ratios.
  kEstimatesLogRatio = 1u << 0,
  // The statistic is of the two log-probs themselves and has no clamp.
  kEstimatesDivergence = 1u << 1,
  // Reads exp(l) - 1 - l.
  kEstimatorReadsExp = 1u << 2,
  // The statistic may be below 0.
  kEstimatorIsSigned = 1u << 3,
};

struct EstimatorInfo {
  const char* name;
  uint32_t traits = 0;  // EstimatorTrait

  constexpr bool Has(EstimatorTrait trait) const {
    return (traits & trait) != 0;
  }
};

enum AggregationTrait : uint32_t {
  // The decision belongs to the whole sequence.
  kAggregatesSequence = 1u << 0,
  // A sequence decision from the sum over the sequence.
  kAggregatesSum = 1u << 1,
  // A sequence decision from counts of tokens that are outside.
  kAggregatesCounts = 1u << 2,
  // The statistic is a running mean over the sequence.
  kAggregatesPrefix = 1u << 3,
  // The statistic is a mean over a turn (turn_means.h).
  kAggregatesTurn = 1u << 4,
};

struct AggregationInfo {
  const char* name;
  uint32_t traits = 0;  // AggregationTrait

  constexpr bool Has(AggregationTrait trait) const {
    return (traits & trait) != 0;
  }
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_RULES_INFO_H_
