#include "kernels/cuda/fold_columns.h"

#include <cstddef>

namespace counterweight::kernels {
namespace {

constexpr size_t kMostOfSegments = kMaxTokenColumns + 2 * kMaxTokenExtrema + 1 +
                                   kNumLossColumns + 2 * kNumLossExtrema;
static_assert(kMostOfSegments <= FoldColumns::kMost);

// Adds `count` elements of an array that begins at `begin`.
void Add(FoldOp op, size_t begin, int count, size_t size, FoldColumns* to) {
  for (int i = 0; i < count; ++i) {
    to->offset[to->count] =
        static_cast<uint16_t>(begin + static_cast<size_t>(i) * size);
    to->op[to->count] = op;
    ++to->count;
  }
}

// The loss's columns of a segment, from the `first` on.
void AddLossOfSegments(int first, FoldColumns* columns) {
  constexpr size_t kLoss = offsetof(SegmentRecord, loss);
  Add(FoldOp::kSum,
      kLoss + offsetof(LossRecord, sums) +
          static_cast<size_t>(first) * sizeof(double),
      kNumLossColumns - first, sizeof(double), columns);
  Add(FoldOp::kFloatLow, kLoss + offsetof(LossRecord, low), kNumLossExtrema,
      sizeof(float), columns);
  Add(FoldOp::kFloatHigh, kLoss + offsetof(LossRecord, high), kNumLossExtrema,
      sizeof(float), columns);
}

}  // namespace

FoldColumns ColumnsOfRows(const Plan& plan) {
  FoldColumns columns;
  const auto add = [&](FoldOp op, size_t begin, int count) {
    Add(op, begin, count, sizeof(double), &columns);
  };
  add(FoldOp::kSum, offsetof(RowRecord, token_sums), plan.token_columns);
  add(FoldOp::kSum, offsetof(RowRecord, row_sums), plan.row_columns);
  add(FoldOp::kLow, offsetof(RowRecord, token_low), plan.token_extrema);
  add(FoldOp::kHigh, offsetof(RowRecord, token_high), plan.token_extrema);
  add(FoldOp::kLow, offsetof(RowRecord, row_low), plan.row_extrema);
  add(FoldOp::kHigh, offsetof(RowRecord, row_high), plan.row_extrema);
  add(FoldOp::kFirst, offsetof(RowRecord, first_bad), 1);
  if (!plan.loss.active) return columns;
  add(FoldOp::kSum, offsetof(RowRecord, loss_sums), kNumLossColumns);
  add(FoldOp::kSum, offsetof(RowRecord, row_loss_sums), kNumRowLossColumns);
  add(FoldOp::kLow, offsetof(RowRecord, row_loss_low), kNumRowLossExtrema);
  add(FoldOp::kHigh, offsetof(RowRecord, row_loss_high), kNumRowLossExtrema);
  return columns;
}

FoldColumns ColumnsOfSegments(const Plan& plan) {
  FoldColumns columns;
  Add(FoldOp::kSum, offsetof(SegmentRecord, sums), plan.token_columns,
      sizeof(double), &columns);
  Add(FoldOp::kFloatLow, offsetof(SegmentRecord, low), plan.token_extrema,
      sizeof(float), &columns);
  Add(FoldOp::kFloatHigh, offsetof(SegmentRecord, high), plan.token_extrema,
      sizeof(float), &columns);
  Add(FoldOp::kFirst, offsetof(SegmentRecord, first_bad), 1, sizeof(int64_t),
      &columns);
  if (plan.loss.active) AddLossOfSegments(0, &columns);
  return columns;
}

FoldColumns ColumnsOfLossPass() {
  FoldColumns columns;
  AddLossOfSegments(kNumLossStatistics, &columns);
  return columns;
}

}  // namespace counterweight::kernels
