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

// For a walk that collects statistics, writes outputs, or both.
ColumnLayout MakeColumnLayout(const Plan& plan, bool stats, bool output);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_COLUMN_LAYOUT_H_
