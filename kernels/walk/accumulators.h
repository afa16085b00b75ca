// Sums that the phases of a walk accumulate over a segment.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ACCUMULATORS_H_
#define COUNTERWEIGHT_KERNELS_WALK_ACCUMULATORS_H_

#include <cstdint>

#include "kernels/tile/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Columns that one pass over a tile adds to: S sums, C counts, and an extremum,
// which is -1 if there is none.
template <int S, int C>
struct PassColumns {
  static constexpr int kCounts = C > 0 ? C : 1;
  int sums[S];
  int counts[kCounts];
  int extremum;
};

// The values of a group of lanes. A count is 0 or 1 for each lane.
template <int S, int C>
struct PassSums {
  Vec sum[S];
  Vec count[PassColumns<S, C>::kCounts];
  Vec lowest;
  Vec highest;

  template <class Bool>
  COUNTERWEIGHT_HD void extend_where(Bool counts, Vec x) {
    kernels::extend_where(counts, x, lowest, highest);
  }
};

template <class Lanes>
struct Accumulators {
  static constexpr int kWidth = Lanes::kWidth;

  typename Lanes::Columns columns;
  LaneValues<kWidth, uint32_t> reasons;
  int64_t first_bad;
  // By prefix index: sum and count over the row so far.
  PrefixBase carry[Lanes::may(kNeedPrefixes) ? kMaxPrefixes : 1];

  COUNTERWEIGHT_HD void clear(const Plan& plan) {
    columns.clear(plan);
    first_bad = kNoBadToken;
  }

  // `Segment` has the members of SegmentRecord.
  template <class Segment>
  COUNTERWEIGHT_HD void fold_lanes(const Plan& plan, Segment& record) {
    columns.fold(plan, record);
    const int64_t bad = Lanes::fold_min(first_bad);
    if (Lanes::writes()) record.first_bad = bad;
  }

  // Lanes that process few steps at a time keep a block's sums in registers
  // until the block is over.
  static constexpr bool kWholeBlocks = Lanes::kTileSteps == kSteps;

  // Adds a tile to N columns: f(step, group, block) adds the values of a group
  // of lanes, 0 where they do not count, to block[0 .. N). Each lane's steps
  // of a block are added in float32, in order, from +0, before they meet the
  // column.
  template <int N, class F>
  COUNTERWEIGHT_HD void add(const int (&into)[N], int steps, F f) {
    if constexpr (kWholeBlocks) {
      add_block(into, steps, f);
    } else {
      add_steps(into, steps, f);
    }
  }

  // The same for one column; x(step, group) is the value.
  template <class F>
  COUNTERWEIGHT_HD void add_each(int column, int steps, F x) {
    const int into[] = {column};
    add(into, steps,
        [&](int k, int g, Vec(&block)[1])
            COUNTERWEIGHT_INLINE_LAMBDA { block[0] += x(k, g); });
  }

  // Adds to N columns of counts: f(step, group, block) adds 0 or 1 for each
  // lane.
  template <int N, class F>
  COUNTERWEIGHT_HD void count(const int (&into)[N], int steps, F f) {
    if constexpr (kWholeBlocks) {
      count_block(into, steps, f);
    } else {
      add_steps(into, steps, f);
    }
  }

  template <class F>
  COUNTERWEIGHT_HD void count_each(int column, int steps, F x) {
    const int into[] = {column};
    count(into, steps,
          [&](int k, int g, Vec(&block)[1])
              COUNTERWEIGHT_INLINE_LAMBDA { block[0] += x(k, g); });
  }

  // Every addend x(step, half group) in float64 by itself.
  template <class F>
  COUNTERWEIGHT_HD void add_exact(int column, int steps, F x) {
    if constexpr (!kWholeBlocks) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < steps; ++k) columns.exact(column) += x(k, 0);
    } else {
      // All lanes at once: a loop over the steps of each register would cost
      // as much as its additions.
      constexpr int kRegisters = kWidth / kWideLanes;
      const int into[] = {column};
      const bool begins = columns.begins(into);
      double* const values = columns.sum_lanes(column).at;
      WideVec sums[kRegisters] = {};
      if (!begins) {
        unrolled<kRegisters>([&](int h) COUNTERWEIGHT_INLINE_LAMBDA {
          sums[h] = load<WideVec>(&values[h * kWideLanes]);
        });
      }
      for (int k = 0; k < steps; ++k) {
        unrolled<kRegisters>(
            [&](int h) COUNTERWEIGHT_INLINE_LAMBDA { sums[h] += x(k, h); });
      }
      unrolled<kRegisters>([&](int h) COUNTERWEIGHT_INLINE_LAMBDA {
        store(sums[h], &values[h * kWideLanes]);
      });
    }
  }

  // add_exact() of x, and of its squares.
  template <class F>
  COUNTERWEIGHT_HD void add_exact_squares(int column, int squares, int steps,
                                          F x) {
    if constexpr (!kWholeBlocks) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < steps; ++k) {
        const WideVec own = x(k, 0);
        columns.exact(column) += own;
        columns.exact(squares) = fused(own, own, columns.exact(squares));
      }
    } else {
      // As many registers as hold both sums of a part of the lanes.
      constexpr int kRegisters = kWidth / kWideLanes;
      constexpr int kAtOnce = kRegisters < 4 ? kRegisters : 4;
      const int into[] = {column, squares};
      const bool begins = columns.begins(into);
      double* const values[] = {columns.sum_lanes(column).at,
                                columns.sum_lanes(squares).at};
      for (int first = 0; first < kRegisters; first += kAtOnce) {
        WideVec sums[2][kAtOnce] = {};
        if (!begins) {
          unrolled<kAtOnce>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
            const int at = (first + i) * kWideLanes;
            sums[0][i] = load<WideVec>(&values[0][at]);
            sums[1][i] = load<WideVec>(&values[1][at]);
          });
        }
        for (int k = 0; k < steps; ++k) {
          unrolled<kAtOnce>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
            const WideVec own = x(k, first + i);
            sums[0][i] += own;
            sums[1][i] = fused(own, own, sums[1][i]);
          });
        }
        unrolled<kAtOnce>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
          const int at = (first + i) * kWideLanes;
          store(sums[0][i], &values[0][at]);
          store(sums[1][i], &values[1][at]);
        });
      }
    }
  }

  // add(), count() and extend() in one pass: f(step, group, PassSums& to).
  template <int S, int C, class F>
  COUNTERWEIGHT_HD void collect(const PassColumns<S, C>& into, int steps, F f) {
    if constexpr (kWholeBlocks) {
      collect_block(into, steps, f);
    } else {
      PassSums<S, C> to;
      take_blocks(into.sums, to.sum);
      if constexpr (C > 0) take_blocks(into.counts, to.count);
      if (into.extremum >= 0) {
        to.lowest = columns.low(into.extremum).at[0];
        to.highest = columns.high(into.extremum).at[0];
      }
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < steps; ++k) f(k, 0, to);
      put_blocks(into.sums, to.sum);
      if constexpr (C > 0) put_blocks(into.counts, to.count);
      if (into.extremum >= 0) {
        columns.low(into.extremum).at[0] = to.lowest;
        columns.high(into.extremum).at[0] = to.highest;
      }
    }
  }

  // Extrema of x where `seen` is not 0. Zeros get their sign when columns fold.
  COUNTERWEIGHT_HD void extend(int extremum, int steps, const TileOf<Lanes>& x,
                               const TileOf<Lanes>& seen) {
    auto& least_of = columns.low(extremum);
    auto& most_of = columns.high(extremum);
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      float* const low = &least_of.at[g * kVecLanes];
      float* const high = &most_of.at[g * kVecLanes];
      Vec lowest = load<Vec>(low);
      Vec highest = load<Vec>(high);
      for_each_step(steps, [&](int k) COUNTERWEIGHT_INLINE_LAMBDA {
        extend_where(seen.vec(k, g) != 0.0f, x.vec(k, g), lowest, highest);
      });
      store(lowest, low);
      store(highest, high);
    }
  }

 private:
  template <int N, class F>
  COUNTERWEIGHT_HD void add_steps(const int (&into)[N], int steps, F f) {
    Vec block[N];
    take_blocks(into, block);
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < steps; ++k) f(k, 0, block);
    put_blocks(into, block);
  }
  template <int N>
  COUNTERWEIGHT_HD void take_blocks(const int (&of)[N], Vec (&block)[N]) {
    COUNTERWEIGHT_UNROLL
    for (int c = 0; c < N; ++c) block[c] = columns.block(of[c]);
  }
  template <int N>
  COUNTERWEIGHT_HD void put_blocks(const int (&into)[N],
                                   const Vec (&block)[N]) {
    COUNTERWEIGHT_UNROLL
    for (int c = 0; c < N; ++c) columns.block(into[c]) = block[c];
  }

  template <int N, class F>
  COUNTERWEIGHT_HD void add_block(const int (&into)[N], int steps, F f) {
    LaneValues<kWidth, float> blocks[N];
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      Vec block[N] = {};
      for_each_step(steps,
                    [&](int k) COUNTERWEIGHT_INLINE_LAMBDA { f(k, g, block); });
      for (int c = 0; c < N; ++c) store(block[c], &blocks[c].at[g * kVecLanes]);
    }
    add_blocks(columns.begins(into), into, blocks);
  }
  template <int N>
  COUNTERWEIGHT_HD void add_blocks(
      bool begins, const int (&into)[N],
      const LaneValues<kWidth, float> (&blocks)[N]) {
    // A block's sum is not -0, so that the first one needs no addition.
    for (int c = 0; c < N; ++c) {
      double* const sum = columns.sum_lanes(into[c]).at;
      for (int h = 0; h < kWidth; h += kWideLanes) {
        const WideVec block = widened(&blocks[c].at[h]);
        store(begins ? block : load<WideVec>(&sum[h]) + block, &sum[h]);
      }
    }
  }

  template <int S, int C, class F>
  COUNTERWEIGHT_HD void collect_block(const PassColumns<S, C>& into, int steps,
                                      F f) {
    LaneValues<kWidth, float> blocks[S];
    bool begins = false;
    if constexpr (C > 0) {
      begins = columns.begins(into.sums, into.counts);
    } else {
      begins = columns.begins(into.sums);
    }
    const bool extends = into.extremum >= 0;
    LaneValues<kWidth, float>* low = nullptr;
    LaneValues<kWidth, float>* high = nullptr;
    const bool begins_extremum =
        extends && columns.begins_extremum(into.extremum, low, high);
    const Vec infinity = splat(__builtin_inff());
    for (int first = 0; first < kWidth; first += kVecLanes) {
      // One by one: g++ clears a whole object in memory.
      PassSums<S, C> to;
      unrolled<S>([&](int c)
                      COUNTERWEIGHT_INLINE_LAMBDA { to.sum[c] = Vec{}; });
      if (begins) {
        unrolled<C>([&](int c)
                        COUNTERWEIGHT_INLINE_LAMBDA { to.count[c] = Vec{}; });
      } else {
        unrolled<C>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
          to.count[c] =
              load<Vec>(&columns.count_lanes(into.counts[c]).at[first]);
        });
      }
      const bool loads = extends && !begins_extremum;
      to.lowest = loads ? load<Vec>(&low->at[first]) : infinity;
      to.highest = loads ? load<Vec>(&high->at[first]) : -infinity;
      for_each_step(steps, [&](int k) COUNTERWEIGHT_INLINE_LAMBDA {
        f(k, first / kVecLanes, to);
      });
      for (int c = 0; c < S; ++c) store(to.sum[c], &blocks[c].at[first]);
      for (int c = 0; c < C; ++c) {
        store(to.count[c], &columns.count_lanes(into.counts[c]).at[first]);
      }
      if (extends) {
        store(to.lowest, &low->at[first]);
        store(to.highest, &high->at[first]);
      }
    }
    add_blocks(begins, into.sums, blocks);
  }

  template <int N, class F>
  COUNTERWEIGHT_HD void count_block(const int (&into)[N], int steps, F f) {
    // One column's registers at once, for the same reason as in add_exact();
    // those of several would not fit.
    constexpr int kGroups = kWidth / kVecLanes;
    constexpr int kAtOnce = N == 1 ? kGroups : 1;
    const bool begins = columns.begins(into);
    LaneValues<kWidth, float>* counts[N];
    for (int c = 0; c < N; ++c) counts[c] = &columns.count_lanes(into[c]);
    for (int first = 0; first < kGroups; first += kAtOnce) {
      Vec block[kAtOnce][N];
      const auto take = [&] {
        unrolled<N>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
          unrolled<kAtOnce>([&](int g) COUNTERWEIGHT_INLINE_LAMBDA {
            const float* const lanes = &counts[c]->at[(first + g) * kVecLanes];
            block[g][c] = begins ? Vec{} : load<Vec>(lanes);
          });
        });
      };
      // Where no masks choose, a copy for either case: one branch for all.
      // Written out, the copies cost 5 % of a row of 100 tokens (g++ 12).
      // NOLINTNEXTLINE(bugprone-branch-clone)
      if (kVecLanes == 16 || begins) {
        take();
      } else {
        take();
      }
      for (int k = 0; k < steps; ++k) {
        unrolled<kAtOnce>([&](int g) COUNTERWEIGHT_INLINE_LAMBDA {
          f(k, first + g, block[g]);
        });
      }
      unrolled<N>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
        unrolled<kAtOnce>([&](int g) COUNTERWEIGHT_INLINE_LAMBDA {
          store(block[g][c], &counts[c]->at[(first + g) * kVecLanes]);
        });
      });
    }
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ACCUMULATORS_H_
