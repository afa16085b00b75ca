// The columns and extrema that a segment's tokens are added to, for lanes that
// keep all of them in one place.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_

#include "kernels/walk/column_table.h"
#include "kernels/walk/record.h"
#include "kernels/walk/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
class LaneColumns {
 public:
  static constexpr int kWidth = Lanes::kWidth;
  template <class T>
  using Values = LaneValues<kWidth, T>;

  // Columns that are not counts. A column is cleared when it is first asked
  // for: clearing all of them would cost a short row more than adding its
  // tokens.
  COUNTERWEIGHT_HD Values<double>& sum(int column) {
    if (is_first(column)) set(sums_[column], 0.0);
    return sums_[column];
  }
  // Counts: exact in float32, see IsCount().
  COUNTERWEIGHT_HD Values<float>& count(int column) {
    if (is_first(column)) set(counts_[column], 0.0f);
    return counts_[column];
  }
  COUNTERWEIGHT_HD Values<float>& low(int extremum) {
    clear_first_extremum(extremum);
    return low_[extremum];
  }
  COUNTERWEIGHT_HD Values<float>& high(int extremum) {
    clear_first_extremum(extremum);
    return high_[extremum];
  }

  // The same for callers that store every lane: true if the column holds
  // nothing yet, and so is not cleared.
  COUNTERWEIGHT_HD bool begins_sum(int column, Values<double>*& values) {
    values = &sums_[column];
    return is_first(column);
  }
  COUNTERWEIGHT_HD bool begins_count(int column, Values<float>*& values) {
    values = &counts_[column];
    return is_first(column);
  }

  // Makes the sums of `to` those of `from`, where both have been the same so
  // far: `to` was only copied in this segment, or not touched. Else returns
  // false.
  COUNTERWEIGHT_HD bool copy_sum(int from, int to) {
    if (has_[to] == kOwn) return false;
    has_[to] = kCopy;
    sums_[to] = sums_[from];
    return true;
  }

  // Called after each block; these columns keep nothing elsewhere.
  COUNTERWEIGHT_HD void end_block() {}
  COUNTERWEIGHT_HD void end_segment() {}
  // The columns of a segment that is over.
  COUNTERWEIGHT_HD LaneColumns& settled() { return *this; }

  void clear(const Plan& /*plan*/) {
    __builtin_memset(has_, 0, sizeof(has_));
    __builtin_memset(has_extremum_, 0, sizeof(has_extremum_));
  }
  // Clears the columns that the loss pass adds to.
  void clear_loss() {
    constexpr int kFirst = kColumnLoss + kNumLossStatistics;
    __builtin_memset(has_ + kFirst, 0, kNumColumns - kFirst);
    __builtin_memset(has_extremum_ + kExtremumLoss, 0, kNumLossExtrema);
  }

  // Stores the sums over all lanes in `record`; called once.
  void fold(const Plan& plan, SegmentRecord& record) {
    fold_columns(0, plan.token_columns, record.sums);
    fold_extrema(0, plan.token_extrema, record.low, record.high);
    if (!plan.loss.active) return;
    fold_columns(kColumnLoss, kColumnLoss + kNumLossStatistics,
                 record.loss.sums);
    fold_loss(record.loss);
  }
  void fold_loss(LossRecord& record) {
    fold_columns(kColumnLoss + kNumLossStatistics, kNumColumns,
                 record.sums + kNumLossStatistics);
    fold_extrema(kExtremumLoss, kNumExtrema, record.low, record.high);
  }

 private:
  template <class T>
  COUNTERWEIGHT_HD static void set(Values<T>& values, T x) {
    for_each_lane<kWidth>([&](int i) { values.at[i] = x; });
  }
  COUNTERWEIGHT_HD bool is_first(int column) {
    const bool first = has_[column] == 0;
    has_[column] = kOwn;
    return first;
  }
  COUNTERWEIGHT_HD void clear_first_extremum(int extremum) {
    if (has_extremum_[extremum] != 0) return;
    has_extremum_[extremum] = 1;
    set(low_[extremum], __builtin_inff());
    set(high_[extremum], -__builtin_inff());
  }

  // Columns [begin, end) to out[0 .. end - begin).
  void fold_columns(int begin, int end, double* out) {
    for (int c = begin; c < end; ++c) {
      double& sum = out[c - begin];
      if (has_[c] == 0) {
        sum = 0.0;
      } else if (IsCount(c)) {
        sum = static_cast<double>(Lanes::fold_sum(counts_[c]));
      } else {
        sum = Lanes::fold_sum(sums_[c]);
      }
    }
  }

  void fold_extrema(int begin, int end, float* least, float* most) {
    for (int e = begin; e < end; ++e) {
      const bool has = has_extremum_[e] != 0;
      // -0 becomes 0, so that which of the two came first is no matter.
      least[e - begin] =
          has ? Lanes::fold_min(low_[e]) + 0.0f : __builtin_inff();
      most[e - begin] =
          has ? Lanes::fold_max(high_[e]) + 0.0f : -__builtin_inff();
    }
  }

  Values<double> sums_[kNumColumns];
  Values<float> counts_[kNumColumns];
  Values<float> low_[kNumExtrema];
  Values<float> high_[kNumExtrema];
  // A column that holds something has sums of its own, or copy_sum()'s.
  static constexpr uint8_t kOwn = 1;
  static constexpr uint8_t kCopy = 2;
  // Not 0 where a column or an extremum holds something.
  uint8_t has_[kNumColumns];
  uint8_t has_extremum_[kNumExtrema];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_
