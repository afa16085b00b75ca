// Layout of a warp's columns in shared memory: only those that a plan touches,
// so that short rows neither clear nor fold columns that stay 0, and more warps
// fit.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_
#define COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_

#include <cstdint>

#include "kernels/plan/needs.h"
#include "kernels/plan/plan.h"
#include "kernels/walk/column_table.h"

namespace counterweight::kernels {

// Stride of columns: 32 lanes and one more, so that lanes that fold one column
// each use different banks.
inline constexpr int kColumnStride = 33;

// A warp has doubles for its sums, then floats for its counts, its minima and
// its maxima. Offset 0 of each kind is a write-only scratch column for disabled
// statistics.
struct ColumnLayout {
  // Offset of a column from the first column of its kind, in doubles, of a
  // count in floats; 0 if not touched.
  uint16_t offset[kNumColumns];
  // Offset of an extremum in floats; 0 if not touched.
  uint16_t extremum[kNumExtrema];
  // The touched columns in the order of their offsets.
  uint16_t sum_columns[kNumColumns];
  uint16_t count_columns[kNumColumns];
  uint16_t extrema[kNumExtrema];
  int32_t num_sums;
  int32_t num_counts;
  int32_t num_extrema;
  // Size of one warp's columns.
  int32_t bytes;
};

// The columns of the first places lie where compiled code expects them.
enum class Place : uint8_t {
  kDrift,         // of every walk with statistics
  kTokenWeights,  // then, of every one with weights by token
  kRuleSums,      // then, of each rule
  kElsewhere,     // of some plans
};
inline constexpr int kNumPlaces = static_cast<int>(Place::kElsewhere) + 1;

// Layouts have room for metrics whether they are wanted or not.
inline constexpr Needs kNeedsOfLayouts = kNeedTokens | kNeedMetrics;

constexpr Place PlaceOf(int column) {
  const ColumnInfo& row = kColumnTable.columns[column];
  if (IsOfLossPass(column)) return Place::kElsewhere;
  const auto always = [&](Needs needs) {
    return IsNeeded(row, needs) || (row.settled & needs) != 0;
  };
  if (always(kNeedsOfLayouts)) return Place::kDrift;
  if (always(kNeedsOfLayouts | kNeedTokenWeights)) return Place::kTokenWeights;
  return row.adds == Adds::kEither ? Place::kRuleSums : Place::kElsewhere;
}

struct KnownOffsets {
  // Offset of a column; 0 where it depends on the plan.
  uint16_t offset[kNumColumns];
};

constexpr KnownOffsets MakeKnownOffsets(bool weights_by_token) {
  KnownOffsets known{};
  int num_sums = 0;
  int num_counts = 0;
  const Place last = weights_by_token ? Place::kRuleSums : Place::kDrift;
  for (int place = 0; place <= static_cast<int>(last); ++place) {
    for (int c = 0; c < kNumColumns; ++c) {
      if (PlaceOf(c) != static_cast<Place>(place)) continue;
      const int before = IsCount(c) ? num_counts++ : num_sums++;
      known.offset[c] = static_cast<uint16_t>((before + 1) * kColumnStride);
    }
  }
  return known;
}

// The layout of a walk that collects statistics, writes outputs, or both.
ColumnLayout MakeColumnLayout(const Plan& plan, bool stats, bool output);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_
