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

constexpr int WholeRegisters(int columns) {
  return (columns + kRowLanes - 1) / kRowLanes * kRowLanes;
}

// The sums and extrema over rows, a row for each lane, by members of RowRecord.
// As many as fill registers when they fold.
struct RowLaneSums {
  WideVec row_sums[WholeRegisters(kMaxRowColumns)];
  WideVec row_low[WholeRegisters(kMaxRowExtrema)];
  WideVec row_high[WholeRegisters(kMaxRowExtrema)];
  WideVec row_loss_sums[WholeRegisters(kNumRowLossColumns)];
  WideVec row_loss_low[WholeRegisters(kNumRowLossExtrema)];
  WideVec row_loss_high[WholeRegisters(kNumRowLossExtrema)];
};

// Folds neighbouring lanes of registers with a column each, pairwise by index:
// lane i of the result is column i.
template <int kLeft, class F>
COUNTERWEIGHT_HD WideVec fold_neighbours(WideVec (&columns)[kLeft], F f) {
  if constexpr (kLeft == 1) {
    return columns[0];
  } else {
    WideVec folded[kLeft / 2];
    const auto fold_two = [&]<int... lane>(WideVec a, WideVec b,
                                           std::integer_sequence<int, lane...>)
        COUNTERWEIGHT_INLINE_LAMBDA {
      return f(__builtin_shufflevector(a, b, (2 * lane)...),
               __builtin_shufflevector(a, b, (2 * lane + 1)...));
    };
    for (int i = 0; i < kLeft / 2; ++i) {
      folded[i] = fold_two(columns[2 * i], columns[2 * i + 1],
                           std::make_integer_sequence<int, kRowLanes>());
    }
    return fold_neighbours(folded, f);
  }
}

// Folds `count` rows' lanes of each column into one number; the other lanes
// become `nothing`, which changes no row's.
template <class F>
COUNTERWEIGHT_HD void fold_row_lanes(WideVec* lanes, int columns, int count,
                                     double nothing, double* out, F f) {
  if (count < kRowLanes) {
    for (int c = 0; c < columns; ++c) {
      for (int i = count; i < kRowLanes; ++i) lanes[c][i] = nothing;
    }
  }
  for (int first = 0; first < columns; first += kRowLanes) {
    WideVec some[kRowLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kRowLanes; ++i) some[i] = lanes[first + i];
    const WideVec folded = fold_neighbours(some, f);
    if (first + kRowLanes <= columns) {
      store(folded, &out[first]);
    } else {
      for (int i = 0; first + i < columns; ++i) out[first + i] = folded[i];
    }
  }
}

// Folds at(0) to at(kRows - 1), pairwise by index.
template <int kRows, int kFirst = 0, class At, class F>
COUNTERWEIGHT_HD auto fold_tree(At at, F f) {
  if constexpr (kRows == 1) {
    return at(kFirst);
  } else {
    constexpr int kHalf = kRows / 2;
    return f(fold_tree<kHalf, kFirst>(at, f),
             fold_tree<kHalf, kFirst + kHalf>(at, f));
  }
}

// The sums over tokens of all rows.
COUNTERWEIGHT_HD void fold_token_sums(const Plan& plan,
                                      const FinishedRow (&rows)[kRowLanes],
                                      RowRecord& out) {
  const auto add = [](double a, double b)
                       COUNTERWEIGHT_INLINE_LAMBDA { return a + b; };
  const auto low = [](float a, float b)
                       COUNTERWEIGHT_INLINE_LAMBDA { return b < a ? b : a; };
  const auto high = [](float a, float b)
                        COUNTERWEIGHT_INLINE_LAMBDA { return b > a ? b : a; };
  COUNTERWEIGHT_IVDEP
  for (int c = 0; c < plan.token_columns; ++c) {
    out.token_sums[c] = fold_tree<kRowLanes>(
        [&](int i) COUNTERWEIGHT_INLINE_LAMBDA { return rows[i].sums.sums[c]; },
        add);
  }
  COUNTERWEIGHT_IVDEP
  for (int e = 0; e < plan.token_extrema; ++e) {
    out.token_low[e] = static_cast<double>(fold_tree<kRowLanes>(
        [&](int i) COUNTERWEIGHT_INLINE_LAMBDA { return rows[i].sums.low[e]; },
        low));
    out.token_high[e] = static_cast<double>(fold_tree<kRowLanes>(
        [&](int i) COUNTERWEIGHT_INLINE_LAMBDA { return rows[i].sums.high[e]; },
        high));
  }
  out.first_bad = fold_tree<kRowLanes>(
      [&](int i) { return rows[i].sums.first_bad; }, first_of);
  if (!plan.loss.active) return;
  COUNTERWEIGHT_IVDEP
  for (int c = 0; c < kNumLossColumns; ++c) {
    out.loss_sums[c] = fold_tree<kRowLanes>(
        [&](int i)
            COUNTERWEIGHT_INLINE_LAMBDA { return rows[i].sums.loss.sums[c]; },
        add);
  }
}

// Sums of no row. -0 changes no sum, not even of zeros.
COUNTERWEIGHT_HD void clear_unused(const Plan& plan, SegmentRecord& record) {
  clear(plan, record);
  for (int c = 0; c < plan.token_columns; ++c) record.sums[c] = -0.0;
  if (!plan.loss.active) return;
  for (int c = 0; c < kNumLossColumns; ++c) record.loss.sums[c] = -0.0;
}

// Makes `out` the fold of `count` rows in order, the first ones of `rows`,
// which are not needed after.
COUNTERWEIGHT_HD void make_record(const Plan& plan, int count,
                                  FinishedRow (&rows)[kRowLanes],
                                  RowLaneSums& sums, RowRecord& out) {
  const RowLanes lanes(rows);
  add_rows(plan, lanes, sums);
  if (plan.loss.active) {
    add_loss(plan.loss, lanes.sum(kColumnTokens), lanes, sums);
  }
  for (int i = count; i < kRowLanes; ++i) clear_unused(plan, rows[i].sums);
  fold_token_sums(plan, rows, out);
  const auto fold_all = [&](WideVec* of, int columns, double nothing,
                            double* into, auto f) {
    fold_row_lanes(of, columns, count, nothing, into, f);
  };
  const auto add = [](WideVec a, WideVec b) { return a + b; };
  const auto low = [](WideVec a, WideVec b) { return b < a ? b : a; };
  const auto high = [](WideVec a, WideVec b) { return b > a ? b : a; };
  const double infinity = __builtin_inf();
  fold_all(sums.row_sums, plan.row_columns, -0.0, out.row_sums, add);
  fold_all(sums.row_low, plan.row_extrema, infinity, out.row_low, low);
  fold_all(sums.row_high, plan.row_extrema, -infinity, out.row_high, high);
  if (!plan.loss.active) return;
  fold_all(sums.row_loss_sums, kNumRowLossColumns, -0.0, out.row_loss_sums,
           add);
  fold_all(sums.row_loss_low, kNumRowLossExtrema, infinity, out.row_loss_low,
           low);
  fold_all(sums.row_loss_high, kNumRowLossExtrema, -infinity, out.row_loss_high,
           high);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_LANES_H_
