// The loss pass of PPO's clip where the ratio is the row's and the gradient
// reaches all of its tokens alike (GSPO): tokens differ in their mask and
// advantage alone, so that nothing else is read, and one pass over a tile keeps
// every sum in registers. On the CPU; its bits are those of LossPhase.
#ifndef COUNTERWEIGHT_KERNELS_WALK_ROW_RATIO_LOSS_H_
#define COUNTERWEIGHT_KERNELS_WALK_ROW_RATIO_LOSS_H_

#include "kernels/plan/needs.h"
#include "kernels/surrogates/clipped.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/column_table.h"
#include "kernels/walk/cpu_lanes.h"
#include "kernels/walk/loss_phase.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The columns that RowRatioLoss fills.
struct RowRatioColumns {
  static constexpr int kExact[] = {kColumnLoss + kLossValue,
                                   kColumnLoss + kLossSequenceSlope};
  static constexpr int kSums[] = {kColumnLoss + kLossRatio,
                                  kColumnLoss + kLossSlope,
                                  kColumnLoss + kLossSlopeClipped};
  static constexpr int kCounts[] = {
      kColumnLoss + kLossClipped, kColumnLoss + kLossHigh,
      kColumnLoss + kLossLow, kColumnLoss + kLossCappedKept};
  static constexpr int kOfGradient[] = {kColumnLoss + kLossGradientSquared};
  // The log ratios are the drift's; without rules nothing is rejected.
  static constexpr int kElsewhere[] = {kColumnLoss + kLossLogRatio,
                                       kColumnLoss + kLossLogRatioKept,
                                       kColumnLoss + kLossSlopeRejected};
  static constexpr int kExtrema[] = {kLossExtremumRatio,
                                     kLossExtremumAdvantage};

  template <int n>
  static constexpr bool Lists(const int (&all)[n], int column) {
    for (const int one : all) {
      if (one == column) return true;
    }
    return false;
  }
  // Whether each column and extremum that such a plan may fill is above.
  static constexpr bool AreAll() {
    for (const ColumnInfo& row : kLossColumnRows) {
      const int column = kColumnLoss + row.column;
      if (IsOfLossPass(column) && IsNeeded(row, kRowRatioNeeds) &&
          !Lists(kExact, column) && !Lists(kSums, column) &&
          !Lists(kCounts, column) && !Lists(kOfGradient, column) &&
          !Lists(kElsewhere, column)) {
        return false;
      }
    }
    for (const ExtremumInfo& row : kLossExtremumRows) {
      if (IsNeeded(row, kRowRatioNeeds) && !Lists(kExtrema, row.extremum)) {
        return false;
      }
    }
    return true;
  }
};
static_assert(RowRatioColumns::AreAll(),
              "RowRatioLoss adds up what LossSumsPhase does: a new column of "
              "the loss needs its line in add_step(), or in kElsewhere.");

// REQUIRES: Plan::row_ratio_alone, and no non-finite number in the row.
class RowRatioLoss {
 public:
  using State = TileState<CpuLanes>;
  using Acc = Accumulators<CpuLanes>;

  RowRatioLoss(const Plan& plan, const LossRow& row, State& s, Acc& acc)
      : plan_(plan), row_(row), s_(s), acc_(acc) {}

  // Adds up the loss of positions [begin, end) and writes all outputs but the
  // gradient. The caller has cleared the columns of the loss. Leaves out the
  // sum of log ratios, which is the drift's.
  void walk(const Batch& batch, int64_t begin, int64_t end,
            const Outputs& outputs) {
    constexpr int kRole = static_cast<int>(InputRole::kAdvantages);
    for_each_tile(batch, begin, end, [&] {
      CpuLanes::load(batch.tensors[kRole], s_.position, s_.count, s_.mask,
                     s_.input[kRole]);
      if (row_.ratio <= __FLT_MAX__) {
        plan_.measures ? add_tile<true, true>() : add_tile<false, true>();
      } else {
        plan_.measures ? add_tile<true, false>() : add_tile<false, false>();
      }
      CpuLanes::store(s_.mask, s_, outputs.weights);
      CpuLanes::store(s_.mask, s_, outputs.keep_mask);
      // Only rules and non-finite numbers are reasons.
      if (outputs.token_reasons == nullptr) return;
      for (int i = 0; i < s_.count; ++i) {
        outputs.token_reasons[s_.position + i] = 0;
      }
    });
  }

  // Writes the gradient, once LossRow::hand_back is known, and adds up its
  // squares.
  void write_gradient(const Batch& batch, int64_t begin, int64_t end,
                      float* gradient) {
    // A token's own slope is 0.
    const Vec narrow =
        splat(static_cast<float>(row_.factor * 0.0 + row_.hand_back));
    const Vec shared = narrow == narrow ? narrow : splat(kCanonicalNaN);
    const WideVec wide = widened_half<false>(shared);
    const WideVec squared = wide * wide;
    for_each_tile(batch, begin, end, [&] {
      if (plan_.measures) {
        acc_.add_exact(kColumnLoss + kLossGradientSquared, s_.steps,
                       [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                         return s_.mask.wide(k, h) != 0.0 ? squared : WideVec{};
                       });
      }
      for_each_group<kLanes>(
          s_.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            s_.weight.set(k, g, s_.mask.vec(k, g) != 0.0f ? shared : Vec{});
          });
      CpuLanes::store(s_.weight, s_, gradient);
    });
  }

 private:
  static constexpr auto& kExact = RowRatioColumns::kExact;
  static constexpr auto& kSums = RowRatioColumns::kSums;
  static constexpr auto& kCounts = RowRatioColumns::kCounts;

  // Sums of a group of lanes. Those of steps in float32 meet their columns
  // when the tile is over.
  struct Group {
    WideVec exact[2][2];  // by column, the lower and the upper half
    Vec sum[3];
    Vec count[4];
    BitsVec any_token;  // a lane has a token
    Vec least_advantage;
    Vec most_advantage;
  };

  // The columns of an extremum.
  struct Extremum {
    LaneValues<kLanes, float>* low;
    LaneValues<kLanes, float>* high;
    bool begins;

    void find(int extremum, LaneColumns<CpuLanes>& columns) {
      begins = columns.begins_extremum(extremum, low, high);
    }
    COUNTERWEIGHT_HD void take(int first, Vec& lowest, Vec& highest) const {
      const Vec infinity = splat(__builtin_inff());
      lowest = begins ? infinity : load<Vec>(&low->at[first]);
      highest = begins ? -infinity : load<Vec>(&high->at[first]);
    }
    COUNTERWEIGHT_HD void put(int first, Vec lowest, Vec highest) const {
      store(lowest, &low->at[first]);
      store(highest, &high->at[first]);
    }
  };

  template <class F>
  void for_each_tile(const Batch& batch, int64_t begin, int64_t end, F f) {
    for (int64_t at = begin; at < end; at += kTilePositions) {
      const int64_t left = end - at;
      s_.position = at;
      s_.count =
          static_cast<int>(left < kTilePositions ? left : kTilePositions);
      s_.steps = CpuLanes::steps(s_.count);
      CpuLanes::load_mask(batch.response_mask, s_.position, s_.count, s_.mask);
      f();
    }
  }

  // The sums of LossSumsPhase. kFinite: the ratio is finite, as it nearly
  // always is.
  template <bool kMeasured, bool kFinite>
  void add_tile() {
    LaneColumns<CpuLanes>& columns = acc_.columns;
    const bool begins = columns.begins(kExact);
    Extremum ratios{};
    Extremum advantages{};
    if (kMeasured) {
      columns.begins(kSums, kCounts);
      ratios.find(kExtremumLoss + kLossExtremumRatio, columns);
      advantages.find(kExtremumLoss + kLossExtremumAdvantage, columns);
    }
    for (int first = 0; first < kLanes; first += kVecLanes) {
      Group to{};
      take<kMeasured>(begins, first, to);
      if (kMeasured) {
        advantages.take(first, to.least_advantage, to.most_advantage);
      }
      for_each_step(s_.steps, [&](int k) COUNTERWEIGHT_INLINE_LAMBDA {
        add_step<kMeasured, kFinite>(k, first / kVecLanes, to);
      });
      put<kMeasured>(begins, first, to);
      if (kMeasured) {
        advantages.put(first, to.least_advantage, to.most_advantage);
        Vec lowest;
        Vec highest;
        ratios.take(first, lowest, highest);
        extend_where(to.any_token != 0, splat(row_.ratio), lowest, highest);
        ratios.put(first, lowest, highest);
      }
    }
  }

  template <bool kMeasured, bool kFinite>
  COUNTERWEIGHT_HD void add_step(int k, int g, Group& to) const {
    constexpr int kRole = static_cast<int>(InputRole::kAdvantages);
    const Vec zero{};
    const Vec mask = s_.mask.vec(k, g);
    const auto seen = mask != 0.0f;
    const Vec a = s_.input[kRole].vec(k, g);
    const Vec ratio = splat(row_.ratio);
    const SurrogateVec v = value<kFinite>(a, ratio);
    const RatioSlope slope = slope_through_ratio(v, splat(row_.slope));
    const Vec loss = seen ? v.value : zero;
    const Vec own = seen ? slope.own : zero;
    to.exact[0][0] += widened_half<false>(loss);
    to.exact[0][1] += widened_half<true>(loss);
    to.exact[1][0] += widened_half<false>(own);
    to.exact[1][1] += widened_half<true>(own);
    if (!kMeasured) return;
    const Vec full = seen ? absolute(slope.full) : zero;
    add_where(seen, ratio, to.sum[0]);
    to.sum[1] += full;
    to.sum[2] += most(full - absolute(own), zero);
    count_flag(v.clipped, mask, to.count[0]);
    count_flag(v.high, mask, to.count[1]);
    count_flag(v.low, mask, to.count[2]);
    count_flag(v.capped, mask, to.count[3]);
    to.any_token |= reinterpret_cast<BitsVec>(mask);
    extend_where(seen, a, to.least_advantage, to.most_advantage);
  }

  template <bool kFinite>
  COUNTERWEIGHT_HD SurrogateVec value(Vec a, Vec ratio) const {
    if constexpr (kFinite) {
      return PpoClip::value_at(plan_.loss, a, ratio);
    } else {
      SurrogateInput x{};
      x.a = a;
      x.r = ratio;
      return PpoClip::value(plan_.loss, x);
    }
  }

  template <bool kMeasured>
  COUNTERWEIGHT_HD void take(bool begins, int first, Group& to) {
    unrolled<2>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
      const double* const at = &acc_.columns.sum_lanes(kExact[c]).at[first];
      to.exact[c][0] = begins ? WideVec{} : load<WideVec>(at);
      to.exact[c][1] = begins ? WideVec{} : load<WideVec>(at + kWideLanes);
    });
    unrolled<kMeasured ? 4 : 0>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
      const float* const at = &acc_.columns.count_lanes(kCounts[c]).at[first];
      to.count[c] = begins ? Vec{} : load<Vec>(at);
    });
  }

  template <bool kMeasured>
  COUNTERWEIGHT_HD void put(bool begins, int first, const Group& to) {
    unrolled<2>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
      double* const at = &acc_.columns.sum_lanes(kExact[c]).at[first];
      store(to.exact[c][0], at);
      store(to.exact[c][1], at + kWideLanes);
    });
    unrolled<kMeasured ? 3 : 0>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
      double* const at = &acc_.columns.sum_lanes(kSums[c]).at[first];
      const WideVec low = widened_half<false>(to.sum[c]);
      const WideVec high = widened_half<true>(to.sum[c]);
      store(begins ? low : load<WideVec>(at) + low, at);
      store(begins ? high : load<WideVec>(at + kWideLanes) + high,
            at + kWideLanes);
    });
    unrolled<kMeasured ? 4 : 0>([&](int c) COUNTERWEIGHT_INLINE_LAMBDA {
      store(to.count[c], &acc_.columns.count_lanes(kCounts[c]).at[first]);
    });
  }

  const Plan& plan_;
  const LossRow& row_;
  State& s_;
  Acc& acc_;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_ROW_RATIO_LOSS_H_
