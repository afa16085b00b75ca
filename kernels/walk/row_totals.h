// The sums of a batch's rows, as a device adds them up: kAllBins numbers for
// each sum of ColumnsOfRows(), one for each other column. Warps add to them in
// any order; all of them 0 are the totals of no row.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_TOTALS_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_TOTALS_H_

#include <cstdint>

#include "kernels/math/exact_sum.h"
#include "kernels/plan/record.h"
#include "kernels/walk/record_columns.h"

namespace counterweight::kernels {

// The record of all rows, each sum rounded once.
RowRecord RecordOf(const Plan& plan, const double* totals);

inline namespace COUNTERWEIGHT_ISA {

// Integers above 0 that are ordered as numbers are, so that the largest of them
// and 0 for none is an extremum.
COUNTERWEIGHT_HD uint64_t key_of(double x) {
  const uint64_t bits = bits_of(x);
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
COUNTERWEIGHT_HD double number_of(uint64_t key) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return double_of((key & kSign) != 0 ? key ^ kSign : ~key);
}

// The key of a low, a high or a first, of which the largest counts.
COUNTERWEIGHT_HD uint64_t key_of(ColumnOp op, const char* value) {
  if (op == ColumnOp::kFirst) {
    return static_cast<uint64_t>(kNoBadToken -
                                 *reinterpret_cast<const int64_t*>(value));
  }
  const double x = *reinterpret_cast<const double*>(value);
  return key_of(op == ColumnOp::kLow ? -x : x);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_TOTALS_H_
