#include "kernels/walk/record_columns.h"

#include <cstddef>

#include "kernels/math/exact_sum.h"
#include "kernels/walk/column_table.h"
#include "kernels/walk/packed_records.h"

namespace counterweight::kernels {
namespace {

constexpr size_t kMostOfSegments = kMaxTokenColumns + 2 * kMaxTokenExtrema + 1 +
                                   kNumLossColumns + 2 * kNumLossExtrema;
static_assert(kMostOfSegments <= RecordColumns::kMost);

ColumnOp SumOf(int column) {
  return IsWhole(column) ? ColumnOp::kWhole : ColumnOp::kSum;
}

// Adds `count` elements of an array that begins at `begin`.
void Add(ColumnOp op, size_t begin, int count, size_t size, RecordColumns* to) {
  for (int i = 0; i < count; ++i) {
    to->offset[to->count] =
        static_cast<uint16_t>(begin + static_cast<size_t>(i) * size);
    to->op[to->count] = op;
    to->total[to->count] = static_cast<uint16_t>(to->totals);
    to->totals += op == ColumnOp::kSum ? kAllBins : 1;
    ++to->count;
  }
}

// The loss's columns of a segment, from the `first` on.
void AddLossOfSegments(const Plan& plan, int first, RecordColumns* columns) {
  const auto loss = static_cast<size_t>(segment_offsets(plan).loss);
  for (int c = first; c < kNumLossColumns; ++c) {
    Add(SumOf(kColumnLoss + c),
        loss + offsetof(LossRecord, sums) +
            static_cast<size_t>(c) * sizeof(double),
        1, sizeof(double), columns);
  }
  Add(ColumnOp::kFloatLow, loss + offsetof(LossRecord, low), kNumLossExtrema,
      sizeof(float), columns);
  Add(ColumnOp::kFloatHigh, loss + offsetof(LossRecord, high), kNumLossExtrema,
      sizeof(float), columns);
}

}  // namespace

RecordColumns ColumnsOfRows(const Plan& plan) {
  const RowOffsets at = row_offsets(plan);
  RecordColumns columns;
  const auto add = [&](ColumnOp op, int32_t begin, int count) {
    Add(op, static_cast<size_t>(begin), count, sizeof(double), &columns);
  };
  constexpr auto kDouble = static_cast<int32_t>(sizeof(double));
  for (int c = 0; c < plan.token_columns; ++c) add(SumOf(c), c * kDouble, 1);
  for (int c = 0; c < plan.row_columns; ++c) {
    add(IsRowCount(c) ? ColumnOp::kWhole : ColumnOp::kSum,
        at.row_sums + c * kDouble, 1);
  }
  add(ColumnOp::kLow, at.token_low, plan.token_extrema);
  add(ColumnOp::kHigh, at.token_high, plan.token_extrema);
  add(ColumnOp::kLow, at.row_low, plan.row_extrema);
  add(ColumnOp::kHigh, at.row_high, plan.row_extrema);
  add(ColumnOp::kFirst, at.first_bad, 1);
  if (!plan.loss.active) return columns;
  columns.first_loss = columns.count;
  for (int c = 0; c < kNumLossColumns; ++c) {
    add(SumOf(kColumnLoss + c), at.loss_sums + c * kDouble, 1);
  }
  add(ColumnOp::kSum, at.row_loss_sums, kNumRowLossColumns);
  add(ColumnOp::kLow, at.row_loss_low, kNumRowLossExtrema);
  add(ColumnOp::kHigh, at.row_loss_high, kNumRowLossExtrema);
  return columns;
}

RecordColumns ColumnsOfSegments(const Plan& plan) {
  const SegmentOffsets at = segment_offsets(plan);
  RecordColumns columns;
  for (int c = 0; c < plan.token_columns; ++c) {
    Add(SumOf(c), static_cast<size_t>(c) * sizeof(double), 1, sizeof(double),
        &columns);
  }
  Add(ColumnOp::kFloatLow, static_cast<size_t>(at.low), plan.token_extrema,
      sizeof(float), &columns);
  Add(ColumnOp::kFloatHigh, static_cast<size_t>(at.high), plan.token_extrema,
      sizeof(float), &columns);
  Add(ColumnOp::kFirst, static_cast<size_t>(at.first_bad), 1, sizeof(int64_t),
      &columns);
  if (plan.loss.active) AddLossOfSegments(plan, 0, &columns);
  return columns;
}

RecordColumns ColumnsOfLossPass(const Plan& plan) {
  RecordColumns columns;
  AddLossOfSegments(plan, kNumLossStatistics, &columns);
  return columns;
}

}  // namespace counterweight::kernels
