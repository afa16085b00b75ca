// The columns of a batch that PartialSums holds, and conversions.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PARTIAL_LAYOUT_H_
#define COUNTERWEIGHT_KERNELS_WALK_PARTIAL_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "kernels/math/exact_sum.h"
#include "kernels/partial_sums.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/walk/record_columns.h"

namespace counterweight::kernels {

// Indices into ColumnsOfRows(): the columns that MakeBatchSums() reads.
struct PartialLayout {
  explicit PartialLayout(const Plan& plan);

  RecordColumns columns;
  std::vector<int> whole;
  std::vector<int> narrow;
  std::vector<int> wide;
  std::vector<int> lows;
  std::vector<int> highs;
};

// A batch's sums before rounding: of each column that is a sum, kAllBins
// numbers at its RecordColumns::total; others are not read.
struct PartialBins {
  explicit PartialBins(const Plan& plan) : layout(plan) {}

  const PartialLayout layout;
  std::vector<double> bins;
};

// `total` is the record of `bins`.
PartialSums MakePartialSums(const Plan& plan, const PartialLayout& layout,
                            int64_t num_sequences, const RowRecord& total,
                            const double* bins);

// Sums over rows of each range of staleness.
struct StalenessBins {
  double log_ratio[kBins];
  double k3[kBins];
};
// buckets: [kNumStalenessBuckets]; of `staleness`, whole numbers are read.
void AddStaleness(const StalenessSums& staleness, const StalenessBins* buckets,
                  PartialSums* sums);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PARTIAL_LAYOUT_H_
