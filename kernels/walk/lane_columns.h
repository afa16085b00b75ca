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

  // Columns that are not counts.
  COUNTERWEIGHT_HD Values<double>& sum(int column) { return sums_[column]; }
  // Counts: exact in float32, see IsCount().
  COUNTERWEIGHT_HD Values<float>& count(int column) { return counts_[column]; }
  COUNTERWEIGHT_HD Values<float>& low(int extremum) { return low_[extremum]; }
  COUNTERWEIGHT_HD Values<float>& high(int extremum) { return high_[extremum]; }

  // Called after each block; these columns keep nothing elsewhere.
  COUNTERWEIGHT_HD void end_block() {}
  COUNTERWEIGHT_HD void end_segment() {}
  // The columns of a segment that is over.
  COUNTERWEIGHT_HD LaneColumns& settled() { return *this; }

  void clear(const Plan& plan) {
    clear_columns(0, plan.token_columns);
    clear_extrema(0, plan.token_extrema);
    if (!plan.loss.active) return;
    clear_columns(kColumnLoss, kColumnLoss + kNumLossStatistics);
    clear_loss();
  }
  // Clears the columns that the loss pass adds to.
  void clear_loss() {
    clear_columns(kColumnLoss + kNumLossStatistics, kNumColumns);
    clear_extrema(kExtremumLoss, kNumExtrema);
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
  void clear_columns(int begin, int end) {
    for (int c = begin; c < end; ++c) {
      if (IsCount(c)) {
        for_each_lane<kWidth>([&](int i) { counts_[c].at[i] = 0.0f; });
      } else {
        for_each_lane<kWidth>([&](int i) { sums_[c].at[i] = 0.0; });
      }
    }
  }

  void clear_extrema(int begin, int end) {
    for (int e = begin; e < end; ++e) {
      for_each_lane<kWidth>([&](int i) {
        low_[e].at[i] = __builtin_inff();
        high_[e].at[i] = -__builtin_inff();
      });
    }
  }

  // Columns [begin, end) to out[0 .. end - begin).
  void fold_columns(int begin, int end, double* out) {
    for (int c = begin; c < end; ++c) {
      if (IsCount(c)) {
        for_each_lane<kWidth>([&](int i) {
          sums_[c].at[i] = static_cast<double>(counts_[c].at[i]);
        });
      }
      out[c - begin] = Lanes::fold_sum(sums_[c]);
    }
  }

  void fold_extrema(int begin, int end, float* least, float* most) {
    for (int e = begin; e < end; ++e) {
      // -0 becomes 0, so that which of the two came first is no matter.
      least[e - begin] = Lanes::fold_min(low_[e]) + 0.0f;
      most[e - begin] = Lanes::fold_max(high_[e]) + 0.0f;
    }
  }

  Values<double> sums_[kNumColumns];
  Values<float> counts_[kNumColumns];
  Values<float> low_[kNumExtrema];
  Values<float> high_[kNumExtrema];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_
