// Sums of a batch's tokens by staleness; a part of BatchSums. PODs.
#ifndef COUNTERWEIGHT_KERNELS_STALENESS_SUMS_H_
#define COUNTERWEIGHT_KERNELS_STALENESS_SUMS_H_

#include <cstdint>

#include "kernels/averages.h"

namespace counterweight::kernels {

// Staleness in versions, both ends inclusive.
struct StalenessRange {
  int64_t first;
  int64_t last;
};
inline constexpr int64_t kOpenEnd = INT64_MAX;

// The ranges by which drift is split.
inline constexpr int kNumStalenessBuckets = 6;
inline constexpr StalenessRange kStalenessBuckets[kNumStalenessBuckets] = {
    {0, 0}, {1, 1}, {2, 2}, {3, 4}, {5, 8}, {9, kOpenEnd}};

// Upper edges of the histogram buckets of staleness, inclusive; one more bucket
// has no upper edge.
inline constexpr int kNumStalenessEdges = 9;
inline constexpr int64_t kStalenessEdges[kNumStalenessEdges] = {
    0, 1, 2, 4, 8, 16, 32, 64, 128};

struct StalenessBucketSums {
  int64_t tokens;
  double log_ratio;  // sum l, each addend exact in float64
  double k3;         // sum exp(l) - 1 - l
};

// Over m, as sums.h defines it; l = log ratio of the spec's drift source.
struct StalenessSums {
  int64_t measured;  // 1: the batch has versions; 0: all else is 0
  StalenessBucketSums buckets[kNumStalenessBuckets];
  int64_t unknown_tokens;                     // of m without a known version
  double staleness;                           // sum over the other tokens
  int64_t max;                                // of them; 0 over none
  int64_t histogram[kNumStalenessEdges + 1];  // of them, by staleness
};

// KL(denominator || numerator) of the bucket's tokens, as DriftSummary::kl and
// k3; NaN without tokens.
inline double KlOf(const StalenessBucketSums& bucket) {
  return Mean(-bucket.log_ratio, bucket.tokens) + 0.0;
}
inline double K3Of(const StalenessBucketSums& bucket) {
  return Mean(bucket.k3, bucket.tokens);
}

// Tokens with a known version.
inline int64_t KnownTokens(const StalenessSums& sums) {
  int64_t tokens = 0;
  for (const StalenessBucketSums& bucket : sums.buckets) {
    tokens += bucket.tokens;
  }
  return tokens;
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_STALENESS_SUMS_H_
