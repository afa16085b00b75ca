// The sums of RowRecord over the rows that one thread of the CPU walks. They
// are exact, so that it does not matter which thread walks which rows.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LANE_TOTALS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LANE_TOTALS_H_

#include <cstdint>

#include "kernels/plan/record.h"
#include "kernels/walk/column_table.h"
#include "kernels/walk/exact_columns.h"
#include "kernels/walk/record_columns.h"
#include "kernels/walk/row_lanes.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

constexpr int CountRowColumnsWithBins() {
  int count = 0;
  for (int c = 0; c < kMaxRowColumns; ++c) count += IsRowCount(c) ? 0 : 1;
  return count;
}

// Trivial, so that it may lie in raw memory: call begin() first.
class LaneTotals {
 public:
  // No row.
  void begin(const Plan& plan) {
    tokens_.begin(RegistersOf(plan.token_columns), [&](int i) {
      return needs_bins(plan, i * kWideLanes, plan.token_columns);
    });
    rows_.begin(plan.row_columns, [](int c) { return !IsRowCount(c); });
    for (int e = 0; e < plan.token_extrema; ++e) {
      token_low_[e] = __builtin_inff();
      token_high_[e] = -__builtin_inff();
    }
    clear_extrema(row_low_, row_high_, plan.row_extrema);
    first_bad_ = kNoBadToken;
    if (!plan.loss.active) return;
    loss_.begin(RegistersOf(kNumLossColumns), [&](int i) {
      const int first = kColumnLoss + i * kWideLanes;
      return needs_bins(plan, first, kNumColumns);
    });
    row_loss_.begin(kNumRowLossColumns, [](int) { return true; });
    clear_extrema(row_loss_low_, row_loss_high_, kNumRowLossExtrema);
  }

  // Adds the first `count` of `rows`, and `sums`, which add_rows() and
  // add_loss() made of them.
  void add(const Plan& plan, int count, const FinishedRow (&rows)[kRowLanes],
           const RowLaneSums& sums) {
    if (count == kRowLanes) {
      add_tokens<kRowLanes>(plan, &rows[0]);
    } else {
      for (int row = 0; row < count; ++row) add_tokens<1>(plan, &rows[row]);
    }
    WideVec lane;
    for (int i = 0; i < kRowLanes; ++i) lane[i] = i;
    const auto is_row = lane < spread_wide<WideVec>(count);
    rows_.add([&](int c) { return is_row ? sums.row_sums[c] : WideVec{}; });
    const auto extend = [&](WideVec* low, WideVec* high, const WideVec* lows,
                            const WideVec* highs, int extrema) {
      for (int e = 0; e < extrema; ++e) {
        low[e] = is_row & (lows[e] < low[e]) ? lows[e] : low[e];
        high[e] = is_row & (highs[e] > high[e]) ? highs[e] : high[e];
      }
    };
    extend(row_low_, row_high_, sums.row_low, sums.row_high, plan.row_extrema);
    if (!plan.loss.active) return;
    row_loss_.add(
        [&](int c) { return is_row ? sums.row_loss_sums[c] : WideVec{}; });
    extend(row_loss_low_, row_loss_high_, sums.row_loss_low, sums.row_loss_high,
           kNumRowLossExtrema);
  }

  // Adds what `from` holds of other rows.
  void merge(const Plan& plan, LaneTotals& from) {
    tokens_.merge(from.tokens_);
    rows_.merge(from.rows_);
    fold_low(token_low_, from.token_low_, plan.token_extrema);
    fold_high(token_high_, from.token_high_, plan.token_extrema);
    fold_low(row_low_, from.row_low_, plan.row_extrema);
    fold_high(row_high_, from.row_high_, plan.row_extrema);
    first_bad_ = first_of(first_bad_, from.first_bad_);
    if (!plan.loss.active) return;
    loss_.merge(from.loss_);
    row_loss_.merge(from.row_loss_);
    fold_low(row_loss_low_, from.row_loss_low_, kNumRowLossExtrema);
    fold_high(row_loss_high_, from.row_loss_high_, kNumRowLossExtrema);
  }

  // Stores the bins of each column that is a sum, kAllBins numbers at its
  // RecordColumns::total. Before take().
  void take_bins(const Plan& plan, const RecordColumns& columns, double* out) {
    int first = 0;
    const auto put = [&](int c, ExactBins<double>& sum) {
      if (columns.op[first + c] != ColumnOp::kSum) return;
      store_bins(sum, &out[columns.total[first + c]]);
    };
    tokens_.take_bins(plan.token_columns, put);
    first = plan.token_columns;
    rows_.take_bins_of_lanes(put);
    if (!plan.loss.active) return;
    first = columns.first_loss;
    loss_.take_bins(kNumLossColumns, put);
    first += kNumLossColumns;
    row_loss_.take_bins_of_lanes(put);
  }

  // The sums of all rows. Only once.
  void take(const Plan& plan, RowRecord& out) {
    take_columns(tokens_, out.token_sums, plan.token_columns);
    rows_.take_lanes([&](int c, double sum) { out.row_sums[c] = sum; });
    for (int e = 0; e < plan.token_extrema; ++e) {
      out.token_low[e] = static_cast<double>(token_low_[e]);
      out.token_high[e] = static_cast<double>(token_high_[e]);
    }
    take_extrema(row_low_, row_high_, plan.row_extrema, out.row_low,
                 out.row_high);
    out.first_bad = first_bad_;
    if (!plan.loss.active) return;
    take_columns(loss_, out.loss_sums, kNumLossColumns);
    row_loss_.take_lanes(
        [&](int c, double sum) { out.row_loss_sums[c] = sum; });
    take_extrema(row_loss_low_, row_loss_high_, kNumRowLossExtrema,
                 out.row_loss_low, out.row_loss_high);
  }

 private:
  // Whether a column of the register that begins at `first` has other numbers
  // than whole ones in a walk of this plan.
  static bool needs_bins(const Plan& plan, int first, int end) {
    const Needs needs = NeedsOfRows(plan.needs);
    for (int c = first; c < end && c < first + kWideLanes; ++c) {
      if (!IsWhole(c) && HasColumn(needs, plan.spec.num_rules, c)) return true;
    }
    return false;
  }
  static void clear_extrema(WideVec* low, WideVec* high, int count) {
    for (int e = 0; e < count; ++e) {
      low[e] = spread_wide<WideVec>(__builtin_inf());
      high[e] = -low[e];
    }
  }
  template <class T>
  static void fold_low(T* low, const T* from, int count) {
    for (int e = 0; e < count; ++e)
      low[e] = from[e] < low[e] ? from[e] : low[e];
  }
  template <class T>
  static void fold_high(T* high, const T* from, int count) {
    for (int e = 0; e < count; ++e) {
      high[e] = from[e] > high[e] ? from[e] : high[e];
    }
  }
  static void take_extrema(const WideVec* low, const WideVec* high, int count,
                           double* least, double* most) {
    for (int e = 0; e < count; ++e) {
      least[e] = low[e][0];
      most[e] = high[e][0];
      for (int i = 1; i < kWideLanes; ++i) {
        least[e] = low[e][i] < least[e] ? low[e][i] : least[e];
        most[e] = high[e][i] > most[e] ? high[e][i] : most[e];
      }
    }
  }
  template <class Registers>
  static void take_columns(Registers& from, double* sums, int columns) {
    from.take([&](int i, WideVec sum) {
      for (int lane = 0; lane < kWideLanes; ++lane) {
        const int c = i * kWideLanes + lane;
        if (c < columns) sums[c] = sum[lane];
      }
    });
  }

  // Adds kCount rows' columns of tokens.
  template <int kCount>
  void add_tokens(const Plan& plan, const FinishedRow* rows) {
    tokens_.template add_each<kCount>([&](int i, int row) {
      return register_of(rows[row].sums.sums, i, plan.token_columns);
    });
    for (int row = 0; row < kCount; ++row) {
      const SegmentRecord& sums = rows[row].sums;
      fold_low(token_low_, sums.low, plan.token_extrema);
      fold_high(token_high_, sums.high, plan.token_extrema);
      first_bad_ = first_of(first_bad_, sums.first_bad);
    }
    if (!plan.loss.active) return;
    loss_.template add_each<kCount>([&](int i, int row) {
      return register_of(rows[row].sums.loss.sums, i, kNumLossColumns);
    });
  }

  ExactRegisters<RegistersOf(kMaxTokenColumns)> tokens_;
  ExactRegisters<RegistersOf(kNumLossColumns)> loss_;
  ExactRegisters<kMaxRowColumns, CountRowColumnsWithBins()> rows_;
  ExactRegisters<kNumRowLossColumns> row_loss_;
  float token_low_[kMaxTokenExtrema];
  float token_high_[kMaxTokenExtrema];
  WideVec row_low_[kMaxRowExtrema];
  WideVec row_high_[kMaxRowExtrema];
  WideVec row_loss_low_[kNumRowLossExtrema];
  WideVec row_loss_high_[kNumRowLossExtrema];
  int64_t first_bad_;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LANE_TOTALS_H_
