// Indices of a policy loss's sums; see columns.h. Unlike those, these are the
// same for every spec, and are touched only if it has a loss.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_LOSS_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_PLAN_LOSS_COLUMNS_H_

namespace counterweight::kernels {

// Sums over tokens.
enum LossColumn : int {
  // Columns of the statistics pass, over LossSpec::over.
  kLossAggregate,  // l (VESPO, GEO_MEAN: clamped their way)
  kLossSeen,       // count
  kLossAdvantage,
  kLossLogProb,    // current log-prob
  kLossLogWeight,  // log of the weight (VESPO, GEO_MEAN)
  kNumLossStatistics,
  // Columns of the loss pass.
  kLossSequenceSlope = kNumLossStatistics,  // w dV/dS over keep
  kLossKlSequenceSlope,
  kLossKl,  // k over its tokens
  // Those of any loss are neighbours, so that few registers hold them.
  kLossValue,     // w V over keep
  kLossLogRatio,  // l of the metrics' source
  kLossLogRatioKept,
  kLossGradientSquared,
  kLossRatio,
  kLossSlope,
  kLossSlopeClipped,
  kLossSlopeRejected,
  kLossPadding,  // w V over masked positions
  kLossPaddingKl,
  kLossPaddingAdvantage,
  kLossRefLogRatio,  // current - ref
  kLossAbsKept,
  kLossSafeKept,
  kLossClippedRatio,
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

#endif  // COUNTERWEIGHT_KERNELS_PLAN_LOSS_COLUMNS_H_
