#include "kernels/cuda/fold_columns.h"

#include <cstddef>

#include "kernels/cuda/packed_records.h"

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

// Fills FoldColumns::only_sums. The last step.
FoldColumns Finished(FoldColumns columns) {
  constexpr int kTogether = 32;
  for (int i = 0; i < columns.count; i += kTogether) {
    columns.only_sums |= 1u << i / kTogether;
  }
  for (int i = 0; i < columns.count; ++i) {
    if (columns.op[i] != FoldOp::kSum) {
      columns.only_sums &= ~(1u << i / kTogether);
    }
  }
  return columns;
}

// The loss's columns of a segment, from the `first` on.
void AddLossOfSegments(const Plan& plan, int first, FoldColumns* columns) {
  const auto loss = static_cast<size_t>(segment_offsets(plan).loss);
  Add(FoldOp::kSum,
      loss + offsetof(LossRecord, sums) +
          static_cast<size_t>(first) * sizeof(double),
      kNumLossColumns - first, sizeof(double), columns);
  Add(FoldOp::kFloatLow, loss + offsetof(LossRecord, low), kNumLossExtrema,
      sizeof(float), columns);
  Add(FoldOp::kFloatHigh, loss + offsetof(LossRecord, high), kNumLossExtrema,
      sizeof(float), columns);
}

}  // namespace

FoldColumns ColumnsOfRows(const Plan& plan) {
  const RowOffsets at = row_offsets(plan);
  FoldColumns columns;
  const auto add = [&](FoldOp op, int32_t begin, int count) {
    Add(op, static_cast<size_t>(begin), count, sizeof(double), &columns);
  };
  add(FoldOp::kSum, 0, plan.token_columns);
  add(FoldOp::kSum, at.row_sums, plan.row_columns);
  add(FoldOp::kLow, at.token_low, plan.token_extrema);
  add(FoldOp::kHigh, at.token_high, plan.token_extrema);
  add(FoldOp::kLow, at.row_low, plan.row_extrema);
  add(FoldOp::kHigh, at.row_high, plan.row_extrema);
  add(FoldOp::kFirst, at.first_bad, 1);
  if (!plan.loss.active) return Finished(columns);
  add(FoldOp::kSum, at.loss_sums, kNumLossColumns);
  add(FoldOp::kSum, at.row_loss_sums, kNumRowLossColumns);
  add(FoldOp::kLow, at.row_loss_low, kNumRowLossExtrema);
  add(FoldOp::kHigh, at.row_loss_high, kNumRowLossExtrema);
  return Finished(columns);
}

FoldColumns ColumnsOfSegments(const Plan& plan) {
  const SegmentOffsets at = segment_offsets(plan);
  FoldColumns columns;
  Add(FoldOp::kSum, 0, plan.token_columns, sizeof(double), &columns);
  Add(FoldOp::kFloatLow, static_cast<size_t>(at.low), plan.token_extrema,
      sizeof(float), &columns);
  Add(FoldOp::kFloatHigh, static_cast<size_t>(at.high), plan.token_extrema,
      sizeof(float), &columns);
  Add(FoldOp::kFirst, static_cast<size_t>(at.first_bad), 1, sizeof(int64_t),
      &columns);
  if (plan.loss.active) AddLossOfSegments(plan, 0, &columns);
  return Finished(columns);
}

FoldColumns ColumnsOfLossPass(const Plan& plan) {
  FoldColumns columns;
  AddLossOfSegments(plan, kNumLossStatistics, &columns);
  return Finished(columns);
}

}  // namespace counterweight::kernels
