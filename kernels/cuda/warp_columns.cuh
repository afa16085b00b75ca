// The columns of a warp's lanes, in shared memory, as registers hold tiles.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_WARP_COLUMNS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_WARP_COLUMNS_CUH_

#include "kernels/cuda/column_layout.h"
#include "kernels/tile/tile.h"
#include "kernels/walk/packed_records.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// As LaneColumns; see ColumnLayout. Every thread of the warp takes every call.
class WarpColumns {
 public:
  static constexpr int kWidth = 1;
  template <class T>
  using Value = LaneValues<1, T>;

  // `memory` holds layout.bytes of this warp alone, 8-byte aligned.
  __device__ void init(const ColumnLayout* layout, double* memory, int lane) {
    layout_ = layout;
    lane_ = lane;
    sums_ = memory;
    counts_ = reinterpret_cast<float*>(sums_ +
                                       (layout->num_sums + 1) * kColumnStride);
    low_ = counts_ + (layout->num_counts + 1) * kColumnStride;
    high_ = low_ + (layout->num_extrema + 1) * kColumnStride;
  }

  __device__ Value<double>& sum(int column) {
    return at<double>(sums_, layout_->offset[column]);
  }
  __device__ Value<float>& count(int column) {
    return at<float>(counts_, layout_->offset[column]);
  }
  __device__ Value<float>& low(int extremum) {
    return at<float>(low_, layout_->extremum[extremum]);
  }
  __device__ Value<float>& high(int extremum) {
    return at<float>(high_, layout_->extremum[extremum]);
  }

  // As LaneColumns, but all columns are cleared before the walk. A class that
  // keeps extrema elsewhere has a begins_extremum() of its own.
  template <class... Columns>
  __device__ static constexpr bool begins(const Columns&... /*columns*/) {
    return false;
  }
  __device__ Value<double>& sum_lanes(int column) { return sum(column); }
  __device__ Value<float>& count_lanes(int column) { return count(column); }
  __device__ bool begins_extremum(int extremum, Value<float>*& low_of,
                                  Value<float>*& high_of) {
    low_of = &low(extremum);
    high_of = &high(extremum);
    return false;
  }

  // Sums cost less than the questions whether they are the same.
  __device__ static constexpr bool copy_sum(int /*from*/, int /*to*/) {
    return false;
  }

  // Clears all columns that this walk touches.
  __device__ void clear(const Plan& /*plan*/) {
    for (int i = 0; i <= layout_->num_sums; ++i) {
      sums_[i * kColumnStride + lane_] = 0.0;
    }
    for (int i = 0; i <= layout_->num_counts; ++i) {
      counts_[i * kColumnStride + lane_] = 0.0f;
    }
    for (int i = 0; i <= layout_->num_extrema; ++i) {
      low_[i * kColumnStride + lane_] = __builtin_inff();
      high_[i * kColumnStride + lane_] = -__builtin_inff();
    }
  }

  // These columns keep nothing elsewhere.
  __device__ void end_block() {}
  __device__ void end_segment() {}
  // The columns of a segment that is over.
  __device__ WarpColumns& settled() { return *this; }

  // As LaneColumns::fold, for the statistics and, in a walk that has it, the
  // loss.
  __device__ void fold(const Plan& plan, PackedSegment& record) {
    for (int c = lane_; c < plan.token_columns; c += kLanes) {
      if (layout_->offset[c] == 0) record.sums[c] = 0.0;
    }
    for (int e = lane_; e < plan.token_extrema; e += kLanes) {
      if (layout_->extremum[e] == 0) untouched(e, record.low, record.high);
    }
    if (plan.loss.active) {
      clear_untouched_loss(0, record.loss);
    }
    fold_touched(record.sums, record.low, record.high, record.loss);
    check_scratch();
  }

  // Folds the columns of the loss pass alone.
  __device__ void fold_loss(LossRecord& record) {
    clear_untouched_loss(kNumLossStatistics, record);
    fold_touched(nullptr, nullptr, nullptr, record);
  }

 protected:
  // Where KnownOffset knows a column to lie.
  __device__ Value<double>& sum_at(int offset) {
    return at<double>(sums_, offset);
  }
  __device__ Value<float>& count_at(int offset) {
    return at<float>(counts_, offset);
  }

 private:
  template <class T>
  __device__ Value<T>& at(T* columns, int offset) {
    return *reinterpret_cast<Value<T>*>(columns + offset + lane_);
  }

  __device__ static void untouched(int e, float* low, float* high) {
    low[e] = __builtin_inff();
    high[e] = -__builtin_inff();
  }

  __device__ void clear_untouched_loss(int begin, LossRecord& record) {
    for (int c = begin + lane_; c < kNumLossColumns; c += kLanes) {
      if (layout_->offset[kColumnLoss + c] == 0) record.sums[c] = 0.0;
    }
    if (lane_ < kNumLossExtrema &&
        layout_->extremum[kExtremumLoss + lane_] == 0) {
      untouched(lane_, record.low, record.high);
    }
  }

  // Each lane folds columns of its own, by halving as LaneColumns does.
  __device__ void fold_touched(double* sums, float* low, float* high,
                               LossRecord& loss) {
    __syncwarp();
    for (int i = lane_; i < layout_->num_sums; i += kLanes) {
      put(layout_->sum_columns[i], folded(sums_ + column(i), Add()), sums,
          loss);
    }
    for (int i = lane_; i < layout_->num_counts; i += kLanes) {
      const float count = folded(counts_ + column(i), Add());
      put(layout_->count_columns[i], static_cast<double>(count), sums, loss);
    }
    for (int i = lane_; i < layout_->num_extrema; i += kLanes) {
      const int e = layout_->extrema[i];
      const bool of_loss = e >= kExtremumLoss;
      const int index = of_loss ? e - kExtremumLoss : e;
      // -0 becomes 0, so the order of the two does not matter.
      (of_loss ? loss.low : low)[index] =
          folded(low_ + column(i), Least()) + 0.0f;
      (of_loss ? loss.high : high)[index] =
          folded(high_ + column(i), Most()) + 0.0f;
    }
    __syncwarp();
  }

  // A walk with statistics adds only to columns that its plan has, so that
  // nothing is lost in the scratch columns. A walk of the loss pass alone
  // counts some statistics a second time there.
  __device__ void check_scratch() const {
#ifdef COUNTERWEIGHT_CHECK_WALK
    ExpectNothing(sums_[lane_] == 0.0 && counts_[lane_] == 0.0f &&
                  low_[lane_] == __builtin_inff() &&
                  high_[lane_] == -__builtin_inff());
#endif
  }

  __device__ static int column(int touched) {
    return (touched + 1) * kColumnStride;
  }

  __device__ static void put(int column, double value, double* sums,
                             LossRecord& loss) {
    if (column >= kColumnLoss) {
      loss.sums[column - kColumnLoss] = value;
    } else {
      sums[column] = value;
    }
  }

  struct Add {
    template <class T>
    __device__ T operator()(T a, T b) const {
      return a + b;
    }
  };
  struct Least {
    __device__ float operator()(float a, float b) const {
      return b < a ? b : a;
    }
  };
  struct Most {
    __device__ float operator()(float a, float b) const {
      return b > a ? b : a;
    }
  };

  template <class T, class F>
  __device__ static T folded(const T* lanes, F f) {
    T values[kLanes];
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kLanes; ++i) values[i] = lanes[i];
    fold_halves<kLanes / 2>(values, f);
    return values[0];
  }
  template <int kHalf, class T, class F>
  __device__ static void fold_halves(T (&values)[kLanes], F f) {
    COUNTERWEIGHT_UNROLL
    for (int i = 0; i < kHalf; ++i) values[i] = f(values[i], values[i + kHalf]);
    if constexpr (kHalf > 1) fold_halves<kHalf / 2>(values, f);
  }

  const ColumnLayout* layout_;
  double* sums_;
  float* counts_;
  float* low_;
  float* high_;
  int lane_;
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WARP_COLUMNS_CUH_
