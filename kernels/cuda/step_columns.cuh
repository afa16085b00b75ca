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
      if (!adds_blocks(c) || IsCount(c)) continue;
      sum(c).at[0] += static_cast<double>(blocks_[c]);
      blocks_[c] = kNothing;
    }
  }

  // A rule's sum takes blocks or each addend by itself; the other is 0.
  __device__ void end_segment() {
    COUNTERWEIGHT_UNROLL
    for (int c = 0; c < kNumColumns; ++c) {
      if (adds_exactly(c)) sum(c).at[0] += exact_[c];
      if (adds_blocks(c) && IsCount(c)) count(c).at[0] += blocks_[c];
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
  static constexpr uint32_t kFeatures = kShapes[kShapeIndex].features;
  static constexpr bool has(Feature feature) {
    return (kFeatures & feature) != 0;
  }
  static constexpr bool kTokenWeights = has(kFeatureTokenWeights);
  static constexpr bool kLoss = kOutput && has(kFeatureLoss);
  static constexpr bool kMetrics = has(kFeatureMetrics);
  static constexpr bool kLossMetrics = kLoss && kMetrics;
  static constexpr bool kLossOfRows = kStats && has(kFeatureRowLoss);
  static constexpr bool kRules = kStats && has(kFeatureRules);
  static constexpr int kRulesEnd = RuleColumnIndex(kMaxShapeRules, kRuleSum);

  static constexpr __device__ int known_offset(int column) {
    constexpr uint32_t kAlways = kShapes[kShapeIndex].always;
    return kStats ? KnownOffset(column, (kAlways & kFeatureTokenWeights) != 0)
                  : 0;
  }

  // Of the columns that shapes have at all.
  static constexpr __device__ bool adds_blocks(int c) {
    if (c >= kColumnLoss) {
      const int l = c - kColumnLoss;
      if (l == kLossSeen) return kLossOfRows;
      if (l == kLossKlTokens) return kLossMetrics && has(kFeatureKl);
      return kLossMetrics && l >= kLossAbsKept && l < kLossPaddingHigh;
    }
    if (c >= kColumnRules) {
      const int of_rule = (c - kColumnRules) % kNumRuleColumns;
      return kRules && c < kRulesEnd && of_rule != kRuleAggregate;
    }
    if (c == kColumnTokens) return kStats;
    const bool probability = c >= kColumnAbsDifference && c < kColumnNonFinite;
    return kStats && !probability && !adds_exactly(c) &&
           c != kColumnNonFinite && is_wanted(c);
  }

  // Of drift and weights: false for columns that a shape is without, and for
  // copies of others.
  static constexpr __device__ bool is_wanted(int c) {
    switch (c) {
      case kColumnKept:
        return has(kFeatureRules);
      case kColumnZeroWeight:
        return has(kFeatureVanishing) || has(kFeatureZeroing);
      case kColumnRawExcess:
        return has(kFeatureOwnRatio);
      case kColumnWeightSeen:
      case kColumnWeightSeenHigh:
        return has(kFeatureRowWeights) || has(kFeatureLateWeights);
      default:
        return kMetrics && (c < kColumnWeight || kTokenWeights);
    }
  }

  static constexpr __device__ bool adds_exactly(int c) {
    if (c >= kColumnLoss) return adds_loss_exactly(c - kColumnLoss);
    if (c >= kColumnRules) {
      const int of_rule = (c - kColumnRules) % kNumRuleColumns;
      return kRules && c < kRulesEnd && of_rule == kRuleSum;
    }
    if (c == kColumnWeightAggregate) return kStats && has(kFeatureRowWeights);
    return kStats && kMetrics && c == kColumnLogRatio;
  }

  static constexpr __device__ bool adds_loss_exactly(int l) {
    switch (l) {
      case kLossAggregate:
        return kLossOfRows;
      case kLossAdvantage:
        return kLossOfRows && has(kFeatureSurrogates);
      case kLossValue:
        return kLoss;
      case kLossLogRatio:
      case kLossLogRatioKept:
      case kLossGradientSquared:
        return kLossMetrics;
      case kLossSequenceSlope:
        return kLoss && has(kFeatureRowLoss);
      case kLossKl:
      case kLossRefLogRatio:
        return kLoss && has(kFeatureKl);
      case kLossKlSequenceSlope:
        return kLoss && has(kFeatureKl) && has(kFeatureRowLoss);
      default:
        return false;
    }
  }

  static constexpr __device__ bool extends(int e) {
    if (e >= kExtremumLoss) {
      return kLossMetrics && e != kExtremumLoss + kLossExtremumPaddingRatio;
    }
    if (e >= kExtremumRules) {
      return kRules && e < kExtremumRules + kMaxShapeRules;
    }
    if (e == kExtremumDifference) return false;
    return kStats && kMetrics && (e == kExtremumLogRatio || kTokenWeights);
  }

  float blocks_[kNumColumns] = {};
  double exact_[kNumColumns] = {};
  Value<float> low_[kNumExtrema];
  Value<float> high_[kNumExtrema];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_STEP_COLUMNS_CUH_
