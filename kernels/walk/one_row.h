// A row's sums as settling reads and writes them, by a thread that holds one
// row. row_lanes.h has the same for the rows of a register.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ONE_ROW_H_
#define COUNTERWEIGHT_KERNELS_WALK_ONE_ROW_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/plan/columns.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// `Segment` has the members of SegmentRecord.
template <class Segment>
class OneRow {
 public:
  using Number = double;

  COUNTERWEIGHT_HD OneRow(Segment& row, const RowState& state)
      : row_(row), state_(state) {}

  // Token columns and extrema.
  COUNTERWEIGHT_HD double sum(int column) const { return row_.sums[column]; }
  COUNTERWEIGHT_HD void set_sum(int column, double x) const {
    row_.sums[column] = x;
  }
  COUNTERWEIGHT_HD double high(int extremum) const {
    return static_cast<double>(row_.high[extremum]);
  }
  COUNTERWEIGHT_HD void set_extremum(int extremum, double low,
                                     double high) const {
    row_.low[extremum] = static_cast<float>(low);
    row_.high[extremum] = static_cast<float>(high);
  }
  // True if sequence rule r fired.
  COUNTERWEIGHT_HD bool fired(int r) const {
    return (state_.fired >> r & 1u) != 0;
  }

 private:
  Segment& row_;
  const RowState& state_;
};

// A row after its loss pass. `Row` has the members of RowRecord, and loss_sums
// that are those of the row's tokens.
template <class Row>
class OneLossRow {
 public:
  using Number = double;

  COUNTERWEIGHT_HD OneLossRow(Row& row, const LossRecord& loss,
                              const LossRow& state)
      : row_(row), loss_(loss), state_(state) {}

  COUNTERWEIGHT_HD double loss_sum(int column) const {
    return row_.loss_sums[column];
  }
  COUNTERWEIGHT_HD void set_loss_sum(int column, double x) const {
    row_.loss_sums[column] = x;
  }
  COUNTERWEIGHT_HD double loss_low(int extremum) const {
    return static_cast<double>(loss_.low[extremum]);
  }
  COUNTERWEIGHT_HD double loss_high(int extremum) const {
    return static_cast<double>(loss_.high[extremum]);
  }
  // Members of the row's state.
  COUNTERWEIGHT_HD double factor() const { return state_.factor; }
  COUNTERWEIGHT_HD double kl_factor() const { return state_.kl_factor; }
  COUNTERWEIGHT_HD double value(int i) const {
    return static_cast<double>(state_.value[i]);
  }

 private:
  Row& row_;
  const LossRecord& loss_;
  const LossRow& state_;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ONE_ROW_H_
