// Where each sum of a policy loss lives; see columns.h. Unlike those, these are
// the same for every spec, and are touched only if it has a loss.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_COLUMNS_H_

namespace counterweight::kernels {

// Sums over tokens. "f64" ones take each addend in float64.
enum LossColumn : int {
  // Of the statistics pass, over LossSpec::over.
  kLossAggregate,  // f64: l (VESPO, GEO_MEAN: clamped their way)
  kLossSeen,       // count
  kLossAdvantage,  // f64
  kLossLogProb,    // f64: current log-prob
  kLossLogWeight,  // f64: log of the weight (VESPO, GEO_MEAN)
  kNumLossStatistics,
  // Of the loss pass.
  kLossValue = kNumLossStatistics,  // f64: w V over keep
  kLossSequenceSlope,               // f64: w dV/dS over keep
  kLossKl,                          // f64: k over its tokens
  kLossKlSequenceSlope,             // f64
  kLossPadding,                     // f64: w V over masked positions
  kLossPaddingKl,                   // f64
  kLossPaddingAdvantage,            // f64
  kLossRefLogRatio,                 // f64: current - ref
  kLossLogRatio,                    // f64: l of the metrics' source
  kLossLogRatioKept,                // f64
  kLossGradientSquared,             // f64
  kLossAbsKept,
  kLossSafeKept,
  kLossRatio,
  kLossClippedRatio,
  kLossSlope,
  kLossSlopeClipped,
  kLossSlopeRejected,
  // Counts.
  kLossKlTokens,
  kLossClipped,
  kLossClippedKept,
  kLossHigh,
  kLossLow,
  kLossHighKept,
  kLossLowKept,
  kLossCappedKept,
  kLossClippedZeroKept,
  kLossPaddingHigh,
  kLossPaddingLow,
  kNumLossColumns
};

constexpr bool IsLossCount(int column) {
  return column == kLossSeen || column >= kLossKlTokens;
}

// Extrema over tokens of response_mask.
enum LossExtremum : int {
  kLossExtremumRatio,
  kLossExtremumAdvantage,
  kLossExtremumPaddingRatio,  // over masked positions
  kNumLossExtrema
};

// Sums over rows.
enum RowLossColumn : int {
  kRowLossPolicy,
  kRowLossKlPenalty,
  kRowLossHigh,  // share of the row's tokens
  kRowLossLow,
  kRowLossMixed,
  kRowLossPhi,
  kNumRowLossColumns
};

// Extrema over rows with tokens, float64.
enum RowLossExtremum : int {
  kRowLossExtremumRatio,
  kRowLossExtremumHigh,
  kRowLossExtremumLow,
  kRowLossExtremumPaddingRatio,  // over all rows
  kNumRowLossExtrema
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_COLUMNS_H_
