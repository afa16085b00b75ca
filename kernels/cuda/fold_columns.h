// The columns of records by which a plan's records differ, one for each lane of
// a fold. What fold() of plan/record.h does record by record, a device does
// column by column, since it reads neighbouring columns in one access.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_FOLD_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_CUDA_FOLD_COLUMNS_H_

#include <cstdint>

#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {

enum class FoldOp : uint8_t {
  kSum,
  kLow,
  kHigh,
  kFirst,  // the least integer
  kFloatLow,
  kFloatHigh,
};

struct FoldColumns {
  // A row has the most; see RowRecord, which has doubles alone.
  static constexpr int kMost = sizeof(RowRecord) / sizeof(double);

  int32_t count = 0;
  // Bit k: the columns from 32 k on, which 32 lanes fold together, are sums.
  uint32_t only_sums = 0;
  uint16_t offset[kMost];  // in the packed record, bytes
  FoldOp op[kMost];
};

FoldColumns ColumnsOfRows(const Plan& plan);
FoldColumns ColumnsOfSegments(const Plan& plan);
// The loss pass's columns of segments.
FoldColumns ColumnsOfLossPass(const Plan& plan);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_FOLD_COLUMNS_H_
