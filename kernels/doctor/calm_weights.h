// Counts of unbounded importance weights by size, from which the bound of a
// run's calm steps is read. Counts of parts of a step, and of steps, add up
// exactly.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_CALM_WEIGHTS_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_CALM_WEIGHTS_H_

#include <array>
#include <cstdint>

#include "kernels/batch.h"
#include "kernels/spec.h"

namespace counterweight::kernels::doctor {

// Buckets of the logarithm a of a weight, in nats: quarter octaves of |a| from
// 2^-15 to 2^4, which the outermost ones exceed, by sign; and |a| <= 2^-15.
inline constexpr int kQuarterOctaves = 76;
inline constexpr int kWeightBuckets = 2 * kQuarterOctaves + 1;

// Ascending by a: bucket kQuarterOctaves is the one around 0.
using WeightCounts = std::array<int64_t, kWeightBuckets>;

// The far end from 0 of a bucket's |a|, nats, within it.
double EndOf(int bucket);

// The bucket of a finite a.
int BucketOf(double a);

// Counts the unbounded weights of `spec` in a batch in host memory, over tokens
// (kToken, kPrefix) or sequences (kSequence, kGeometric) of the mask with
// finite log-probs: of all rows, or of those that Sample chooses of a large
// batch. REQUIRES: the batch has the log-probs of spec.source, and spec.level
// is not kNone.
WeightCounts CountWeights(const Batch& batch, const WeightSpec& spec);

int64_t NumWeights(const WeightCounts& counts);

// Mean of a^2 with each |a| as the end of its bucket; 0 without weights.
double MeanSquare(const WeightCounts& counts);

// The quantile of a, rounded up to the end of its bucket, nats, at least 2^-15:
// of `quantile` of the weights a is not larger, unless the answer is 2^4.
// REQUIRES: there are weights.
double LogQuantile(const WeightCounts& counts, double quantile);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_CALM_WEIGHTS_H_
