// The columns of a plan's records. On a device one lane adds each up, from
// packed records: the lanes read neighbouring columns in one access.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RECORD_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_WALK_RECORD_COLUMNS_H_

#include <cstdint>

#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {

// How the numbers of several records become one.
enum class ColumnOp : uint8_t {
  kSum,
  kWhole,  // a sum of whole numbers, exact in any order
  kLow,
  kHigh,
  kFirst,  // the least integer
  kFloatLow,
  kFloatHigh,
};

struct RecordColumns {
  // A row has the most; see RowRecord, which has doubles alone.
  static constexpr int kMost = sizeof(RowRecord) / sizeof(double);

  int32_t count = 0;
  int32_t totals = 0;      // numbers of all columns' totals, see row_totals.h
  int32_t first_loss = 0;  // of rows: the first of the loss, if there is one
  uint16_t offset[kMost];  // in the packed record, bytes
  uint16_t total[kMost];   // the first of the column's totals
  ColumnOp op[kMost];
};

RecordColumns ColumnsOfRows(const Plan& plan);
RecordColumns ColumnsOfSegments(const Plan& plan);
// The loss pass's columns of segments.
RecordColumns ColumnsOfLossPass(const Plan& plan);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RECORD_COLUMNS_H_
