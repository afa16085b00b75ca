// Columns of a walk that looks at few steps at a time: a block is added up in
// registers and meets the columns in shared memory when it is over; counts,
// which are exact, when the segment is.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_STEP_COLUMNS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_STEP_COLUMNS_CUH_

#include "kernels/cuda/shapes.h"
#include "kernels/cuda/warp_columns.cuh"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// As LaneColumns. Columns are compile-time constants wherever they are named,
// or no register could hold them.
template <int kShapeIndex, bool kStats, bool kOutput>
class StepColumns : public WarpColumns {
 public:
  __device__ float& block(int column) { return blocks_[column]; }
  __device__ double& exact(int column) { return exact_[column]; }
  __device__ Value<double>& sum(int column) {
    const int known = known_offset(column);
    return known != 0 ? sum_at(known) : WarpColumns::sum(column);
  }
  __device__ Value<float>& count(int column) {
    const int known = known_offset(column);
    return known != 0 ? count_at(known) : WarpColumns::count(column);
  }
  __device__ Value<float>& low(int extremum) { return low_[extremum]; }
  __device__ Value<float>& high(int extremum) { return high_[extremum]; }
  __device__ bool begins_extremum(int extremum, Value<float>*& low_of,
                                  Value<float>*& high_of) {
    low_of = &low(extremum);
    high_of = &high(extremum);
    return false;
  }

  __device__ void clear(const Plan& plan) {
    WarpColumns::clear(plan);
    COUNTERWEIGHT_UNROLL
    for (int c = 0; c < kNumColumns; ++c) {
      if (adds_blocks(c)) blocks_[c] = kNothing;
      if (adds_exactly(c)) exact_[c] = 0.0;
    }
    COUNTERWEIGHT_UNROLL
    for (int e = 0; e < kNumExtrema; ++e) {
      if (!extends(e)) continue;
      low_[e].at[0] = __builtin_inff();
      high_[e].at[0] = -__builtin_inff();
    }
  }

  __device__ void end_block() {
    COUNTERWEIGHT_UNROLL
    for (int c = 0; c < kNumColumns; ++c) {
      if (!adds_blocks(c) || is_count(c)) continue;
      sum(c).at[0] += static_cast<double>(blocks_[c]);
      blocks_[c] = kNothing;
    }
  }

  // A rule's sum takes blocks or each addend by itself; the other is 0.
  __device__ void end_segment() {
    COUNTERWEIGHT_UNROLL
    for (int c = 0; c < kNumColumns; ++c) {
      if (adds_exactly(c)) sum(c).at[0] += exact_[c];
      if (adds_blocks(c) && is_count(c)) count(c).at[0] += blocks_[c];
    }
    COUNTERWEIGHT_UNROLL
    for (int e = 0; e < kNumExtrema; ++e) {
      if (!extends(e)) continue;
      WarpColumns::low(e) = low_[e];
      WarpColumns::high(e) = high_[e];
    }
  }

 private:
  // -0 + x is x for every x, so that the first addend of a block needs no
  // addition; the sum that it becomes starts from 0.
  static constexpr float kNothing = -0.0f;
  static constexpr Needs kNeeds = kShapes[kShapeIndex].needs | kNeedTokens;
  // The sums of a shape: local tables are constants for the compiler wherever
  // an index is one.
  struct Shaped {
    bool blocks[kNumColumns];
    bool exact[kNumColumns];
    bool extrema[kNumExtrema];
  };
  // A sum of the statistics or of the loss pass, of a rule that shapes have.
  static constexpr bool walks(bool is_of_loss_pass, int rule) {
    return (is_of_loss_pass ? kOutput : kStats) && rule < kMaxShapeRules;
  }
  static constexpr Shaped make_shaped() {
    Shaped shaped{};
    for (int c = 0; c < kNumColumns; ++c) {
      const ColumnInfo& column = kColumnTable.columns[c];
      const bool is_wanted =
          walks(IsOfLossPass(c), RuleOfColumn(c)) && IsNeeded(column, kNeeds);
      const Adds adds = column.adds;
      shaped.blocks[c] =
          is_wanted && (adds == Adds::kCount || adds == Adds::kBlocks ||
                        adds == Adds::kEither);
      shaped.exact[c] =
          is_wanted && (adds == Adds::kExact || adds == Adds::kEither);
    }
    for (int e = 0; e < kNumExtrema; ++e) {
      shaped.extrema[e] = walks(IsExtremumOfLossPass(e), RuleOfExtremum(e)) &&
                          IsNeeded(kColumnTable.extrema[e], kNeeds);
    }
    return shaped;
  }

  static constexpr __device__ int known_offset(int column) {
    constexpr Needs kAlways = kShapes[kShapeIndex].always;
    constexpr KnownOffsets kKnown =
        MakeKnownOffsets((kAlways & kNeedTokenWeights) != 0);
    return kStats ? kKnown.offset[column] : 0;
  }
  static constexpr __device__ bool is_count(int c) {
    constexpr ColumnTable kTable = kColumnTable;
    return kTable.columns[c].adds == Adds::kCount;
  }
  static constexpr __device__ bool adds_blocks(int c) {
    constexpr Shaped kShaped = make_shaped();
    return kShaped.blocks[c];
  }
  static constexpr __device__ bool adds_exactly(int c) {
    constexpr Shaped kShaped = make_shaped();
    return kShaped.exact[c];
  }
  static constexpr __device__ bool extends(int e) {
    constexpr Shaped kShaped = make_shaped();
    return kShaped.extrema[e];
  }

  float blocks_[kNumColumns] = {};
  double exact_[kNumColumns] = {};
  Value<float> low_[kNumExtrema];
  Value<float> high_[kNumExtrema];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_STEP_COLUMNS_CUH_
