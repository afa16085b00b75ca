// The rows that one thread of the CPU settles together: one for each lane of a
// register, so that a row's end costs a part of what it costs by itself.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_LANES_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_LANES_H_

#include <cstdint>
#include <utility>

#include "kernels/plan/record.h"
#include "kernels/tile/tile.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

inline constexpr int kRowLanes = kWideLanes;

// The rows as settling reads and writes them, see one_row.h.
class RowLanes {
 public:
  using Number = WideVec;

  COUNTERWEIGHT_HD explicit RowLanes(FinishedRow (&rows)[kRowLanes])
      : rows_(rows) {}

  COUNTERWEIGHT_HD WideVec sum(int column) const {
    return gather(
        [&](const FinishedRow& row) { return row.sums.sums[column]; });
  }
  COUNTERWEIGHT_HD void set_sum(int column, WideVec x) const {
    for (int i = 0; i < kRowLanes; ++i) rows_[i].sums.sums[column] = x[i];
  }
  COUNTERWEIGHT_HD WideVec high(int extremum) const {
    return gather([&](const FinishedRow& row) {
      return static_cast<double>(row.sums.high[extremum]);
    });
  }
  COUNTERWEIGHT_HD void set_extremum(int extremum, WideVec low,
                                     WideVec high) const {
    for (int i = 0; i < kRowLanes; ++i) {
      rows_[i].sums.low[extremum] = static_cast<float>(low[i]);
      rows_[i].sums.high[extremum] = static_cast<float>(high[i]);
    }
  }
  COUNTERWEIGHT_HD auto fired(int r) const {
    return gather([&](const FinishedRow& row) {
             return static_cast<double>(row.state.fired >> r & 1u);
           }) != 0.0;
  }

  COUNTERWEIGHT_HD WideVec loss_sum(int column) const {
    return gather(
        [&](const FinishedRow& row) { return row.sums.loss.sums[column]; });
  }
  COUNTERWEIGHT_HD void set_loss_sum(int column, WideVec x) const {
    for (int i = 0; i < kRowLanes; ++i) rows_[i].sums.loss.sums[column] = x[i];
  }
  COUNTERWEIGHT_HD WideVec loss_low(int extremum) const {
    return gather([&](const FinishedRow& row) {
      return static_cast<double>(row.sums.loss.low[extremum]);
    });
  }
  COUNTERWEIGHT_HD WideVec loss_high(int extremum) const {
    return gather([&](const FinishedRow& row) {
      return static_cast<double>(row.sums.loss.high[extremum]);
    });
  }
  COUNTERWEIGHT_HD WideVec factor() const {
    return gather([](const FinishedRow& row) { return row.state.loss.factor; });
  }
  COUNTERWEIGHT_HD WideVec kl_factor() const {
    return gather(
        [](const FinishedRow& row) { return row.state.loss.kl_factor; });
  }
  COUNTERWEIGHT_HD WideVec value(int i) const {
    return gather([&](const FinishedRow& row) {
      return static_cast<double>(row.state.loss.value[i]);
    });
  }

 private:
  template <class F>
  COUNTERWEIGHT_HD WideVec gather(F f) const {
    return gather(f, std::make_integer_sequence<int, kRowLanes>());
  }
  template <class F, int... lane>
  COUNTERWEIGHT_HD WideVec gather(F f,
                                  std::integer_sequence<int, lane...>) const {
    return WideVec{f(rows_[lane])...};
  }

  FinishedRow (&rows_)[kRowLanes];
};

// The sums and extrema over rows, a row for each lane, by members of RowRecord.
struct RowLaneSums {
  WideVec row_sums[kMaxRowColumns];
  WideVec row_low[kMaxRowExtrema];
  WideVec row_high[kMaxRowExtrema];
  WideVec row_loss_sums[kNumRowLossColumns];
  WideVec row_loss_low[kNumRowLossExtrema];
  WideVec row_loss_high[kNumRowLossExtrema];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_LANES_H_
