// The calm level of a run's weights, and what decides it.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CALM_LEVEL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CALM_LEVEL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/doctor/calm_weights.h"
#include "kernels/spec.h"

namespace counterweight::server {

// Steps with weights that a level takes.
inline constexpr size_t kFewestCalmSteps = 8;
// Steps that are kept while they have too few weights, of 1.2 KB each.
inline constexpr size_t kMostCalmSteps = 32;

// Weights and their quantile: requests with equal ones share a calm level.
struct CalmWeights {
  // Ratio source, level and clamps; the rest as in an empty spec.
  kernels::WeightSpec spec;
  double quantile = 0.0;  // in (0.5, 1)

  // So many weights have ten above the quantile.
  double needed_weights() const { return 10.0 / (1.0 - quantile); }

  bool operator==(const CalmWeights&) const = default;
};

// The answer of a run's calm steps to the question for a step's bound.
struct CalmLevel {
  // False: the step is one of those that make the level.
  bool is_calm = false;
  double bound = 0.0;  // a ratio >= 1; with is_calm alone
  // The steps that the bound is of, or that are known so far, and their
  // weights.
  int64_t steps = 0;
  int64_t weights = 0;
};

// A batch's weights, to be counted for its step.
struct CalmBatch {
  CalmWeights of;
  int64_t step = 0;
  kernels::doctor::WeightCounts counts{};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CALM_LEVEL_H_
