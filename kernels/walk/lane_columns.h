// The columns and extrema that a segment's tokens are added to, for lanes that
// keep all of them in one place.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/plan/record.h"
#include "kernels/tile/tile.h"
#include "kernels/walk/column_table.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// A set of indices [0, N).
template <int N>
class IndexSet {
 public:
  constexpr bool has(int i) const {
    return (words_[i / 64] >> i % 64 & 1) != 0;
  }
  constexpr void add(int i) { words_[i / 64] |= uint64_t{1} << i % 64; }
  bool operator==(const IndexSet&) const = default;
  COUNTERWEIGHT_HD void operator|=(const IndexSet& other) {
    for (int w = 0; w < kWords; ++w) words_[w] |= other.words_[w];
  }
  COUNTERWEIGHT_HD bool meets(const IndexSet& other) const {
    uint64_t both = 0;
    for (int w = 0; w < kWords; ++w) both |= words_[w] & other.words_[w];
    return both != 0;
  }
  COUNTERWEIGHT_HD bool contains(const IndexSet& other) const {
    uint64_t missing = 0;
    for (int w = 0; w < kWords; ++w) missing |= other.words_[w] & ~words_[w];
    return missing == 0;
  }
  // Removes [first, N).
  void remove_from(int first) {
    for (int w = 0; w < kWords; ++w) words_[w] &= below(first, w);
  }
  // f(i) for each i of both sets in [begin, end), in order.
  template <class F>
  void for_each(int begin, int end, const IndexSet& other, F f) const {
    for (int w = begin / 64; w * 64 < end; ++w) {
      uint64_t left =
          words_[w] & other.words_[w] & below(end, w) & ~below(begin, w);
      for (; left != 0; left &= left - 1) f(w * 64 + __builtin_ctzll(left));
    }
  }

 private:
  static constexpr int kWords = (N + 63) / 64;
  // The part of word w that lies below `end`.
  static uint64_t below(int end, int w) {
    const int bits = end - w * 64;
    return bits >= 64  ? ~uint64_t{0}
           : bits <= 0 ? 0
                       : (uint64_t{1} << bits) - 1;
  }

  uint64_t words_[kWords] = {};
};

// Starts as memory that holds zeros.
template <class Lanes>
class LaneColumns {
 public:
  static constexpr int kWidth = Lanes::kWidth;
  template <class T>
  using Values = LaneValues<kWidth, T>;

  // Columns that are not counts. A column is cleared at its first use: clearing
  // all of them would cost a short row more than adding its tokens.
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

  // The same for passes that store every lane of the columns they add to. They
  // call begins() first: true if none of the columns holds anything yet, which
  // leaves them as they are. Columns of one pass begin together, and are looked
  // up together.
  template <int N>
  COUNTERWEIGHT_HD bool begins(const int (&columns)[N]) {
    return begin(set_of(columns));
  }
  template <int N, int M>
  COUNTERWEIGHT_HD bool begins(const int (&sums)[N], const int (&counts)[M]) {
    IndexSet<kNumColumns> all = set_of(sums);
    all |= set_of(counts);
    return begin(all);
  }
  COUNTERWEIGHT_HD Values<double>& sum_lanes(int column) {
    return sums_[column];
  }
  COUNTERWEIGHT_HD Values<float>& count_lanes(int column) {
    return counts_[column];
  }
  COUNTERWEIGHT_HD bool begins_extremum(int extremum, Values<float>*& low,
                                        Values<float>*& high) {
    const bool begin = !has_extremum_.has(extremum);
    has_extremum_.add(extremum);
    low = &low_[extremum];
    high = &high_[extremum];
    return begin;
  }

  // Makes the sums of `to` those of `from`, where both have been the same so
  // far: `to` was only copied in this segment, or not touched. Else returns
  // false.
  COUNTERWEIGHT_HD bool copy_sum(int from, int to) {
    if (own_.has(to)) return false;
    has_.add(to);
    sums_[to] = sums_[from];
    return true;
  }

  // Called after each block; these columns keep nothing elsewhere.
  COUNTERWEIGHT_HD void end_block() {}
  COUNTERWEIGHT_HD void end_segment() {}

  void clear(const Plan& /*plan*/) {
    has_ = {};
    own_ = {};
    has_extremum_ = {};
  }
  // Clears the columns that the loss pass adds to.
  void clear_loss() {
    has_.remove_from(kColumnLoss + kNumLossStatistics);
    own_.remove_from(kColumnLoss + kNumLossStatistics);
    has_extremum_.remove_from(kExtremumLoss);
  }

  // Stores the sums over all lanes in `record`; called once.
  void fold(const Plan& plan, SegmentRecord& record) {
    fold_columns(Range::kTokens, 0, plan.token_columns, record.sums);
    fold_extrema(0, plan.token_extrema, record.low, record.high);
    if (!plan.loss.active) return;
    fold_columns(Range::kLossStatistics, kColumnLoss,
                 kColumnLoss + kNumLossStatistics, record.loss.sums);
    fold_loss(record.loss);
  }
  // The sum of one column that is not a count.
  double fold_sum(int column) {
    WideVec lanes[kWideLanes] = {};
    lanes[0] = Lanes::halved(sum(column));
    return Lanes::fold_registers(lanes)[0];
  }
  void fold_loss(LossRecord& record) {
    fold_columns(Range::kLoss, kColumnLoss + kNumLossStatistics, kNumColumns,
                 record.sums + kNumLossStatistics);
    fold_extrema(kExtremumLoss, kNumExtrema, record.low, record.high);
  }

 private:
  template <class T>
  COUNTERWEIGHT_HD static void set(Values<T>& values, T x) {
    for_each_lane<kWidth>([&](int i) { values.at[i] = x; });
  }
  COUNTERWEIGHT_HD bool is_first(int column) {
    const bool first = !has_.has(column);
    has_.add(column);
    own_.add(column);
    return first;
  }
  template <int N>
  static COUNTERWEIGHT_HD IndexSet<kNumColumns> set_of(
      const int (&columns)[N]) {
    IndexSet<kNumColumns> set;
    unrolled<N>([&](int c)
                    COUNTERWEIGHT_INLINE_LAMBDA { set.add(columns[c]); });
    return set;
  }
  COUNTERWEIGHT_HD bool begin(const IndexSet<kNumColumns>& columns) {
    const bool all = !has_.meets(columns);
    if (!all && !has_.contains(columns)) clear_missing(columns);
    has_ |= columns;
    own_ |= columns;
    return all;
  }
  __attribute__((noinline)) void clear_missing(
      const IndexSet<kNumColumns>& columns) {
    columns.for_each(0, kNumColumns, columns, [&](int c) {
      if (has_.has(c)) return;
      if (IsCount(c)) {
        set(counts_[c], 0.0f);
      } else {
        set(sums_[c], 0.0);
      }
    });
  }
  COUNTERWEIGHT_HD void clear_first_extremum(int extremum) {
    if (has_extremum_.has(extremum)) return;
    has_extremum_.add(extremum);
    set(low_[extremum], __builtin_inff());
    set(high_[extremum], -__builtin_inff());
  }

  // Columns that are folded together.
  enum class Range : uint8_t { kTokens, kLossStatistics, kLoss };
  static constexpr int kRanges = 3;

  // Columns of one kind and range that hold something. Rows after each other
  // nearly always have the same, so that they are looked for once.
  struct Found {
    void look(const IndexSet<kNumColumns>& has,
              const IndexSet<kNumColumns>& kind, int begin, int end_of_range) {
      if (of == has && end == end_of_range) return;
      of = has;
      end = end_of_range;
      count = 0;
      has.for_each(begin, end, kind, [&](int c) { columns[count++] = c; });
      // Folded a second time where a register would not be full.
      for (int i = 0; i < kWideLanes; ++i) columns[count + i] = columns[0];
    }

    IndexSet<kNumColumns> of;
    int end;
    int count;
    int columns[kNumColumns + kWideLanes];
  };

  static void clear(int count, double* out) {
    int c = 0;
    for (; c + kWideLanes <= count; c += kWideLanes) store(WideVec{}, &out[c]);
    for (; c < count; ++c) out[c] = 0.0;
  }

  // Columns [begin, end) to out[0 .. end - begin).
  void fold_columns(Range range, int begin, int end, double* out) {
    clear(end - begin, out);
    const int at = static_cast<int>(range);
    found_sums_[at].look(has_, kIsSum, begin, end);
    found_counts_[at].look(has_, kIsCount, begin, end);
    fold_found(found_sums_[at], begin, out,
               [&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
                 return Lanes::halved(sums_[c]);
               });
    fold_found(found_counts_[at], begin, out,
               [&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
                 return Lanes::halved_count(counts_[c]);
               });
  }
  // A register of columns at a time.
  template <class F>
  void fold_found(const Found& found, int begin, double* out, F halved) {
    for (int first = 0; first < found.count; first += kWideLanes) {
      const int* const some = &found.columns[first];
      WideVec lanes[kWideLanes];
#pragma GCC unroll 8
      for (int i = 0; i < kWideLanes; ++i) {
        lanes[i] = halved(some[i]);
      }
      const WideVec sums = Lanes::fold_registers(lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kWideLanes; ++i) out[some[i] - begin] = sums[i];
    }
  }

  void fold_extrema(int begin, int end, float* least, float* most) {
    for (int e = begin; e < end; ++e) {
      const bool has = has_extremum_.has(e);
      // -0 becomes 0, so the order of the two does not matter.
      least[e - begin] =
          has ? Lanes::fold_min(low_[e]) + 0.0f : __builtin_inff();
      most[e - begin] =
          has ? Lanes::fold_max(high_[e]) + 0.0f : -__builtin_inff();
    }
  }

  static constexpr IndexSet<kNumColumns> columns_where(bool is_count) {
    IndexSet<kNumColumns> columns;
    for (int c = 0; c < kNumColumns; ++c) {
      if (IsCount(c) == is_count) columns.add(c);
    }
    return columns;
  }
  static constexpr IndexSet<kNumColumns> kIsCount = columns_where(true);
  static constexpr IndexSet<kNumColumns> kIsSum = columns_where(false);

  Values<double> sums_[kNumColumns];
  Values<float> counts_[kNumColumns];
  Values<float> low_[kNumExtrema];
  Values<float> high_[kNumExtrema];
  // Columns and extrema that hold something, and those of them that hold
  // something else than copy_sum()'s.
  IndexSet<kNumColumns> has_;
  IndexSet<kNumColumns> own_;
  IndexSet<kNumExtrema> has_extremum_;
  Found found_sums_[kRanges];
  Found found_counts_[kRanges];
};

// The sums of a segment with folded lanes, as columns of one lane.
class FoldedColumns {
 public:
  static constexpr int kWidth = 1;
  template <class T>
  struct Value {
    T at[1];
  };

  // A segment of a walk with statistics.
  explicit FoldedColumns(SegmentRecord& record)
      : sums_(record.sums),
        low_(record.low),
        high_(record.high),
        loss_(record.loss) {}
  // One of a walk of outputs alone.
  explicit FoldedColumns(LossRecord& loss)
      : sums_(nullptr), low_(nullptr), high_(nullptr), loss_(loss) {}

  Value<double>& sum(int column) {
    return as_value(column < kColumnLoss ? sums_[column]
                                         : loss_.sums[column - kColumnLoss]);
  }
  Value<double>& count(int column) { return sum(column); }
  Value<float>& low(int extremum) { return as_value(low_[extremum]); }
  Value<float>& high(int extremum) { return as_value(high_[extremum]); }

 private:
  template <class T>
  static Value<T>& as_value(T& x) {
    return reinterpret_cast<Value<T>&>(x);
  }

  double* sums_;
  float* low_;  // none of the loss is settled
  float* high_;
  LossRecord& loss_;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LANE_COLUMNS_H_
