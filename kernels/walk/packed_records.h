// Records in device memory, where each has only the columns of its plan: a
// batch of short rows has a record for every few tokens. Both views have the
// members of the records in plan/record.h.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PACKED_RECORDS_H_
#define COUNTERWEIGHT_KERNELS_WALK_PACKED_RECORDS_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {

struct PackedSegment {
  double* sums;  // [plan.token_columns]
  int64_t& first_bad;
  float* low;        // [plan.token_extrema]
  float* high;       // [plan.token_extrema]
  LossRecord& loss;  // only if plan.loss.active
};

struct PackedRow {
  double* token_sums;  // [plan.token_columns]
  double* row_sums;    // [plan.row_columns]
  double* token_low;   // [plan.token_extrema]
  double* token_high;  // [plan.token_extrema]
  double* row_low;     // [plan.row_extrema]
  double* row_high;    // [plan.row_extrema]
  int64_t& first_bad;
  // Only if plan.loss.active.
  double* loss_sums;      // [kNumLossColumns]
  double* row_loss_sums;  // [kNumRowLossColumns]
  double* row_loss_low;   // [kNumRowLossExtrema]
  double* row_loss_high;  // [kNumRowLossExtrema]
};

inline namespace COUNTERWEIGHT_ISA {

// Where arrays of a packed record begin, and its size, bytes.
struct SegmentOffsets {
  int32_t first_bad, low, high, loss, bytes;
};
struct RowOffsets {
  int32_t row_sums, token_low, token_high, row_low, row_high, first_bad;
  int32_t loss_sums, row_loss_sums, row_loss_low, row_loss_high, bytes;
};

COUNTERWEIGHT_HD SegmentOffsets segment_offsets(const Plan& plan) {
  constexpr auto kDouble = static_cast<int32_t>(sizeof(double));
  const auto extrema = plan.token_extrema * static_cast<int32_t>(sizeof(float));
  SegmentOffsets at{};
  at.first_bad = plan.token_columns * kDouble;
  at.low = at.first_bad + kDouble;
  at.high = at.low + extrema;
  at.loss = at.high + extrema;
  at.bytes = at.loss;
  if (plan.loss.active) at.bytes += static_cast<int32_t>(sizeof(LossRecord));
  return at;
}

COUNTERWEIGHT_HD RowOffsets row_offsets(const Plan& plan) {
  constexpr auto kDouble = static_cast<int32_t>(sizeof(double));
  RowOffsets at{};
  at.row_sums = plan.token_columns * kDouble;
  at.token_low = at.row_sums + plan.row_columns * kDouble;
  at.token_high = at.token_low + plan.token_extrema * kDouble;
  at.row_low = at.token_high + plan.token_extrema * kDouble;
  at.row_high = at.row_low + plan.row_extrema * kDouble;
  at.first_bad = at.row_high + plan.row_extrema * kDouble;
  at.loss_sums = at.first_bad + kDouble;
  at.row_loss_sums = at.loss_sums + kNumLossColumns * kDouble;
  at.row_loss_low = at.row_loss_sums + kNumRowLossColumns * kDouble;
  at.row_loss_high = at.row_loss_low + kNumRowLossExtrema * kDouble;
  at.bytes = plan.loss.active ? at.row_loss_high + kNumRowLossExtrema * kDouble
                              : at.loss_sums;
  return at;
}

template <class T>
COUNTERWEIGHT_HD T* part_of(char* record, int32_t offset) {
  return reinterpret_cast<T*>(record + offset);
}

// `record` is 8-byte aligned.
COUNTERWEIGHT_HD PackedSegment packed_segment(const Plan& plan, char* record) {
  const SegmentOffsets at = segment_offsets(plan);
  return {part_of<double>(record, 0), *part_of<int64_t>(record, at.first_bad),
          part_of<float>(record, at.low), part_of<float>(record, at.high),
          *part_of<LossRecord>(record, at.loss)};
}

COUNTERWEIGHT_HD PackedRow packed_row(const Plan& plan, char* record) {
  const RowOffsets at = row_offsets(plan);
  return {part_of<double>(record, 0),
          part_of<double>(record, at.row_sums),
          part_of<double>(record, at.token_low),
          part_of<double>(record, at.token_high),
          part_of<double>(record, at.row_low),
          part_of<double>(record, at.row_high),
          *part_of<int64_t>(record, at.first_bad),
          part_of<double>(record, at.loss_sums),
          part_of<double>(record, at.row_loss_sums),
          part_of<double>(record, at.row_loss_low),
          part_of<double>(record, at.row_loss_high)};
}

// The `index`-th record of an array.
COUNTERWEIGHT_HD PackedSegment segment_at(const Plan& plan, char* records,
                                          int64_t index) {
  return packed_segment(plan, records + index * segment_offsets(plan).bytes);
}
COUNTERWEIGHT_HD PackedRow row_at(const Plan& plan, char* records,
                                  int64_t index) {
  return packed_row(plan, records + index * row_offsets(plan).bytes);
}

// Copies the plan's columns of a row between packed and other records.
template <class From, class To>
COUNTERWEIGHT_HD void copy_row(const Plan& plan, const From& from, To& to) {
  const auto copy = [](int count, const double* values, double* into) {
    for (int i = 0; i < count; ++i) into[i] = values[i];
  };
  copy(plan.token_columns, from.token_sums, to.token_sums);
  copy(plan.row_columns, from.row_sums, to.row_sums);
  copy(plan.token_extrema, from.token_low, to.token_low);
  copy(plan.token_extrema, from.token_high, to.token_high);
  copy(plan.row_extrema, from.row_low, to.row_low);
  copy(plan.row_extrema, from.row_high, to.row_high);
  to.first_bad = from.first_bad;
  if (!plan.loss.active) return;
  copy(kNumLossColumns, from.loss_sums, to.loss_sums);
  copy(kNumRowLossColumns, from.row_loss_sums, to.row_loss_sums);
  copy(kNumRowLossExtrema, from.row_loss_low, to.row_loss_low);
  copy(kNumRowLossExtrema, from.row_loss_high, to.row_loss_high);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PACKED_RECORDS_H_
