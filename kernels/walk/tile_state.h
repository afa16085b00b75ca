// What the phases of a walk hand to each other about one tile, and what they
// add up over a segment.
#ifndef COUNTERWEIGHT_KERNELS_WALK_TILE_STATE_H_
#define COUNTERWEIGHT_KERNELS_WALK_TILE_STATE_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/math/bits.h"
#include "kernels/walk/plan.h"
#include "kernels/walk/record.h"
#include "kernels/walk/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct TileState {
  static constexpr int kWidth = Lanes::kWidth;
  using Values = Tile<kWidth>;

  int64_t position;  // of the tile's first token, in the batch
  int count;         // positions
  int steps;
  // Inputs by role, 0 where mask is 0.
  Values input[kNumInputRoles];
  // Masks hold 0 or 1. mask: response_mask less dropped non-finite tokens;
  // left: less what DROP rules dropped so far; zeroed: hit by a ZERO_WEIGHT
  // rule.
  Values mask;
  Values left;
  Values zeroed;
  // By ratio source.
  Values log_ratio[kNumRatioSources];
  Values exp[kNumRatioSources];
  Values expm1[kNumRatioSources];
  Values k3[kNumRatioSources];
  // The bounded weight of kToken and kPrefix.
  Values weight;
  // Scratch of one rule: its estimator before a running mean, its statistic,
  // where it is outside, where it fired.
  Values estimate;
  Values statistic;
  Values high;
  Values low;
  Values fired;
  BitTile<kWidth> reasons;
};

template <class Lanes>
struct Accumulators {
  static constexpr int kWidth = Lanes::kWidth;

  // By column: counts of those that IsCount(), sums of the others.
  LaneValues<kWidth, double> sums[kMaxTokenColumns];
  LaneValues<kWidth, float> counts[kMaxTokenColumns];
  LaneValues<kWidth, float> low[kMaxTokenExtrema];
  LaneValues<kWidth, float> high[kMaxTokenExtrema];
  LaneValues<kWidth, uint32_t> reasons;
  int64_t first_bad;
  // By prefix index: sum and count over the row so far.
  PrefixBase carry[kMaxPrefixes];

  COUNTERWEIGHT_HD void clear(const Plan& plan) {
    for (int c = 0; c < plan.token_columns; ++c) {
      if (IsCount(c)) {
        for_each_lane<kWidth>([&](int i) { counts[c].at[i] = 0.0f; });
      } else {
        for_each_lane<kWidth>([&](int i) { sums[c].at[i] = 0.0; });
      }
    }
    for (int e = 0; e < plan.token_extrema; ++e) {
      for_each_lane<kWidth>([&](int i) {
        low[e].at[i] = __builtin_inff();
        high[e].at[i] = -__builtin_inff();
      });
    }
    first_bad = kNoBadToken;
  }

  // Adds a tile to N columns: f(step, group, block) adds the values of a group
  // of lanes, 0 where they do not count, to block[0 .. N). Each lane's steps
  // are added in float32, in order, from +0, before they meet the column.
  template <int N, class F>
  COUNTERWEIGHT_HD void add(const int (&columns)[N], int steps, F f) {
    LaneValues<kWidth, float> blocks[N];
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      Vec block[N] = {};
      for (int k = 0; k < steps; ++k) f(k, g, block);
      for (int c = 0; c < N; ++c) store(block[c], &blocks[c].at[g * kVecLanes]);
    }
    for (int c = 0; c < N; ++c) {
      LaneValues<kWidth, double>& sum = sums[columns[c]];
      for_each_lane<kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
        sum.at[i] += static_cast<double>(blocks[c].at[i]);
      });
    }
  }

  // The same for one column; x(step, group) is the value.
  template <class F>
  COUNTERWEIGHT_HD void add_each(int column, int steps, F x) {
    const int columns[] = {column};
    add(columns, steps,
        [&](int k, int g, Vec(&block)[1])
            COUNTERWEIGHT_INLINE_LAMBDA { block[0] += x(k, g); });
  }

  // Adds to N columns of counts: f(step, group, block) adds 0 or 1 for each
  // lane.
  template <int N, class F>
  COUNTERWEIGHT_HD void count(const int (&columns)[N], int steps, F f) {
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      Vec block[N];
      for (int c = 0; c < N; ++c) {
        block[c] = load<Vec>(&counts[columns[c]].at[g * kVecLanes]);
      }
      for (int k = 0; k < steps; ++k) f(k, g, block);
      for (int c = 0; c < N; ++c) {
        store(block[c], &counts[columns[c]].at[g * kVecLanes]);
      }
    }
  }

  template <class F>
  COUNTERWEIGHT_HD void count_each(int column, int steps, F x) {
    const int columns[] = {column};
    count(columns, steps,
          [&](int k, int g, Vec(&block)[1])
              COUNTERWEIGHT_INLINE_LAMBDA { block[0] += x(k, g); });
  }

  // Every addend x(step, half group) in float64 by itself.
  template <class F>
  COUNTERWEIGHT_HD void add_exact(int column, int steps, F x) {
    for (int h = 0; h < kWidth / kWideLanes; ++h) {
      double* const lanes = &sums[column].at[h * kWideLanes];
      WideVec sum = load<WideVec>(lanes);
      for (int k = 0; k < steps; ++k) sum += x(k, h);
      store(sum, lanes);
    }
  }

  // Extrema of x where `seen` is not 0.
  COUNTERWEIGHT_HD void extend(int extremum, int steps, const Tile<kWidth>& x,
                               const Tile<kWidth>& seen) {
    const Vec infinity = splat(__builtin_inff());
    for (int g = 0; g < kWidth / kVecLanes; ++g) {
      float* const least = &low[extremum].at[g * kVecLanes];
      float* const most = &high[extremum].at[g * kVecLanes];
      Vec lowest = load<Vec>(least);
      Vec highest = load<Vec>(most);
      for (int k = 0; k < steps; ++k) {
        const Vec value = x.vec(k, g);
        const auto takes = seen.vec(k, g) != 0.0f;
        const Vec below = takes ? value : infinity;
        const Vec above = takes ? value : -infinity;
        lowest = below < lowest ? below : lowest;
        highest = above > highest ? above : highest;
      }
      store(lowest, least);
      store(highest, most);
    }
  }

  COUNTERWEIGHT_HD void fold_lanes(const Plan& plan, SegmentRecord& record) {
    const bool writes = Lanes::writes();
    for (int c = 0; c < plan.token_columns; ++c) {
      if (IsCount(c)) {
        for_each_lane<kWidth>([&](int i) {
          sums[c].at[i] = static_cast<double>(counts[c].at[i]);
        });
      }
      const double sum = Lanes::fold_sum(sums[c]);
      if (writes) record.sums[c] = sum;
    }
    for (int e = 0; e < plan.token_extrema; ++e) {
      const float least = Lanes::fold_min(low[e]);
      const float most = Lanes::fold_max(high[e]);
      if (writes) {
        record.low[e] = least;
        record.high[e] = most;
      }
    }
    const int64_t bad = Lanes::fold_min(first_bad);
    if (writes) record.first_bad = bad;
  }
};

// Numerator and denominator of a ratio source.
COUNTERWEIGHT_HD int numerator(RatioSource source) {
  return static_cast<int>(source == RatioSource::kOldRollout
                              ? InputRole::kOld
                              : InputRole::kCurrent);
}
COUNTERWEIGHT_HD int denominator(RatioSource source) {
  return static_cast<int>(source == RatioSource::kCurrentOld
                              ? InputRole::kOld
                              : InputRole::kRollout);
}

// Log ratios of a half group in float64, clamped: the exact differences, on
// which sums over rows hang.
template <class Lanes>
COUNTERWEIGHT_HD WideVec exact_log_ratio(const TileState<Lanes>& s,
                                         RatioSource source, double clamp,
                                         int k, int h) {
  const WideVec l = s.input[numerator(source)].wide(k, h) -
                    s.input[denominator(source)].wide(k, h);
  const WideVec c = splat_wide(clamp);
  const WideVec capped = l > c ? c : l;
  return capped < -c ? -c : capped;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_TILE_STATE_H_
