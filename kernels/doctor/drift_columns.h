// The columns of an attribution's sums (attribution.h): the addends, the tokens
// that have them, and the index of each. PODs, as passes.h.
//
// x, y, z: the log-probs that were sent, in the order rollout, old, current; z
// may be missing. Log ratios first = y - x and later = z - y are cut to
// [-kMostLogRatio, kMostLogRatio]; l = first + later, or first alone. u(r) =
// e^r - 1, k3(r) = u(r) - r (J. Schulman, Approximating KL Divergence, 2020).
// Then k3(l) = k3(first) + k3(later) + u(first) u(later) for each token.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_DRIFT_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_DRIFT_COLUMNS_H_

#include <cstdint>

#include "kernels/math/exact_sum.h"
#include "kernels/sums.h"

namespace counterweight::kernels::doctor {

// The clamp of other systems, so that a filler of -9999 leaves sums finite.
inline constexpr double kMostLogRatio = kSafetyClamp;

// By -x: bucket b begins at edge b - 1, inclusive; bucket 0 has what is below
// the first edge.
inline constexpr float kMagnitudeEdges[] = {0.01f, 0.1f, 0.5f, 1.0f,
                                            2.0f,  4.0f, 8.0f};
inline constexpr int kNumMagnitudes = 8;

// By l: bucket b ends at edge b of kHistogramEdges, inclusive.
inline constexpr int kNumLogRatios = kNumHistogramEdges + 1;

// By place among the row's tokens, from 0: buckets 0, 1, 2-3, 4-7 and so on. A
// sample has at most 2^16 positions.
inline constexpr int kNumPlaces = 17;

// By tokens of the row: buckets 1, 2-3, 4-7 and so on.
inline constexpr int kNumLengths = 17;

// Sums of float64 numbers over tokens, by where they are kept. Of buckets there
// are two: of l, and of k3(l).
enum DriftColumn : int {
  kFirstK3,
  kLaterK3,
  kInteraction,  // u(first) u(later)
  kFirstLogRatio,
  kLaterLogRatio,
  kFreshK3,  // k3(first) of rows where all tokens have staleness 0
  kByMagnitude,
  kByLogRatio = kByMagnitude + 2 * kNumMagnitudes,
  kByPlace = kByLogRatio + 2 * kNumLogRatios,
  kNumRowColumns = kByPlace + 2 * kNumPlaces,
  // Rows add to few of these.
  kByLength = kNumRowColumns,
  kNumDriftColumns = kByLength + 2 * kNumLengths
};

// A row of the sample: its tokens [begin, end) of the arrays.
struct DriftRow {
  int64_t begin;
  int64_t end;
  bool is_fresh;  // all tokens have staleness 0
  double k3;      // set by the pass: the sum of k3(l)
};

struct DriftInput {
  const float* streams[3];  // x, y, z; z is null if it was not sent
  DriftRow* rows;
  int64_t num_rows;
};

struct DriftTotals {
  // Exact sums, carried up (kernels/math/exact_sum.h).
  double bins[kNumDriftColumns][kBins];
  int64_t tokens[kNumPlaces][kNumMagnitudes];
  int64_t log_ratio_tokens[kNumLogRatios];
  int64_t length_tokens[kNumLengths];
  int64_t fresh_tokens;
};

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_DRIFT_COLUMNS_H_
