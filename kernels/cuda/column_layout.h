// Where a warp's columns lie in shared memory: only those that a plan touches,
// so that short rows neither clear nor fold what stays 0, and more warps fit.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_
#define COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_

#include <cstdint>

#include "kernels/walk/columns.h"
#include "kernels/walk/plan.h"

namespace counterweight::kernels {

// Values from one column to the next: 32 lanes and one more, so that lanes that
// fold one column each meet different banks.
inline constexpr int kColumnStride = 33;

// The first columns of a rule: its sum, that of its clamped statistic and of
// the square. All rules have the place, token rules the use.
inline constexpr int kNumRuleSums = kRuleClampedSquared + 1;

// A warp has doubles for its sums, then floats for its counts, its minima and
// its maxima. The first column of each kind takes what nobody asks for.
struct ColumnLayout {
  // Of a column that is no count in doubles, of a count in floats, from the
  // first column of its kind; 0: not touched.
  uint16_t offset[kNumColumns];
  // In floats; 0: not touched.
  uint16_t extremum[kNumExtrema];
  // The touched ones, in order of their offsets.
  uint16_t sum_columns[kNumColumns];
  uint16_t count_columns[kNumColumns];
  uint16_t extrema[kNumExtrema];
  int32_t num_sums;
  int32_t num_counts;
  int32_t num_extrema;
  // Of one warp.
  int32_t bytes;
};

// Walks with statistics touch the drift's columns first, then those of weights
// by token, then sums of rules, so that compiled code knows where these lie:
// the offset, or 0 of other columns.
constexpr int KnownOffset(int column, bool weights_by_token) {
  constexpr int kDriftSums = kColumnExcessSquared - kColumnLogRatio + 1;
  constexpr int kWeightSums = kColumnRawExcess - kColumnWeight + 1;
  constexpr int kDriftCounts = 1 + kNumHistogramEdges;
  constexpr int kCounts[] = {kColumnWeightHigh, kColumnWeightLow};
  if (column >= kColumnLogRatio && column <= kColumnExcessSquared) {
    return (column - kColumnLogRatio + 1) * kColumnStride;
  }
  if (column == kColumnTokens) return kColumnStride;
  if (column >= kColumnHistogram && column < kColumnAbsDifference) {
    return (column - kColumnHistogram + 2) * kColumnStride;
  }
  if (!weights_by_token) return 0;
  if (column >= kColumnWeight && column <= kColumnRawExcess) {
    return (kDriftSums + column - kColumnWeight + 1) * kColumnStride;
  }
  if (column >= kColumnRules && column < kMaxTokenColumns) {
    const int rule = (column - kColumnRules) / kNumRuleColumns;
    const int of_rule = (column - kColumnRules) % kNumRuleColumns;
    const int before = kDriftSums + kWeightSums + rule * kNumRuleSums;
    return of_rule < kNumRuleSums ? (before + of_rule + 1) * kColumnStride : 0;
  }
  for (int i = 0; i < 2; ++i) {
    if (column == kCounts[i]) return (kDriftCounts + i + 1) * kColumnStride;
  }
  return 0;
}

// For a walk that collects statistics, writes outputs, or both.
ColumnLayout MakeColumnLayout(const Plan& plan, bool stats, bool output);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_
