// Sums of a segment, a row and a batch.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_RECORD_H_
#define COUNTERWEIGHT_KERNELS_PLAN_RECORD_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/plan/columns.h"
#include "kernels/plan/plan.h"

namespace counterweight::kernels {

// Sums of the loss over a segment or a row.
struct LossRecord {
  double sums[kNumLossColumns];
  float low[kNumLossExtrema];
  float high[kNumLossExtrema];
};

// Token columns and extrema of a segment or a row.
struct SegmentRecord {
  double sums[kMaxTokenColumns];
  float low[kMaxTokenExtrema];
  float high[kMaxTokenExtrema];
  // Least (position in the batch * kBadTokenCodes + role * 2 + (input ? 0 : 1))
  // of a non-finite number; kNoBadToken if there is none.
  int64_t first_bad;
  LossRecord loss;
};

inline constexpr int64_t kNoBadToken = INT64_MAX;
inline constexpr int64_t kBadTokenCodes = 16;

// Row-level inputs of the loss of a row's tokens.
struct LossRow {
  // The factor of both reductions.
  double factor;
  double kl_factor;
  // prescales_advantages: what advantages are multiplied by.
  // averages_advantages: their mean. Else 1.
  double advantage;
  // d loss / d l of each token of LossSpec::over, from the whole row.
  double hand_back;
  // Levels other than kToken: r, r - 1, and dr / dS.
  float ratio, excess, slope;
  // GEO_MEAN: V. VESPO: phi where A >= 0, where A < 0.
  float value[2];
  // counts_padding: the row's padding adds to the policy's part.
  bool padding_counts;
};

// Decisions from a row's sums.
struct RowState {
  uint32_t fired;  // sequence rules with a statistic outside
  float weight;    // sequence levels: the bounded weight
  LossRow loss;
};

// The start of a segment's PREFIX statistic: the sums of the row's earlier
// segments.
struct PrefixBase {
  double sum;
  double count;
};

// One row after its walks.
struct FinishedRow {
  SegmentRecord sums;  // all segments', the loss pass's included
  RowState state;
};

// A row, or all rows of a batch.
struct RowRecord {
  double token_sums[kMaxTokenColumns];
  double row_sums[kMaxRowColumns];
  double token_low[kMaxTokenExtrema];
  double token_high[kMaxTokenExtrema];
  double row_low[kMaxRowExtrema];
  double row_high[kMaxRowExtrema];
  int64_t first_bad;
  double loss_sums[kNumLossColumns];
  double row_loss_sums[kNumRowLossColumns];
  double row_loss_low[kNumRowLossExtrema];
  double row_loss_high[kNumRowLossExtrema];
};

inline namespace COUNTERWEIGHT_ISA {

COUNTERWEIGHT_HD void clear_loss(LossRecord& record) {
  for (int c = 0; c < kNumLossColumns; ++c) record.sums[c] = 0.0;
  for (int e = 0; e < kNumLossExtrema; ++e) {
    record.low[e] = __builtin_inff();
    record.high[e] = -__builtin_inff();
  }
}

// Extends a's extrema by b's.
COUNTERWEIGHT_HD void extend_loss(LossRecord& a, const LossRecord& b) {
  for (int e = 0; e < kNumLossExtrema; ++e) {
    a.low[e] = b.low[e] < a.low[e] ? b.low[e] : a.low[e];
    a.high[e] = b.high[e] > a.high[e] ? b.high[e] : a.high[e];
  }
}

// A segment without tokens.
COUNTERWEIGHT_HD void clear(const Plan& plan, SegmentRecord& record) {
  for (int c = 0; c < plan.token_columns; ++c) record.sums[c] = 0.0;
  for (int e = 0; e < plan.token_extrema; ++e) {
    record.low[e] = __builtin_inff();
    record.high[e] = -__builtin_inff();
  }
  record.first_bad = kNoBadToken;
  if (plan.loss.active) clear_loss(record.loss);
}

COUNTERWEIGHT_HD int64_t first_of(int64_t a, int64_t b) {
  return b < a ? b : a;
}

// Extends a's extrema by b's, of the same row.
COUNTERWEIGHT_HD void extend(const Plan& plan, SegmentRecord& a,
                             const SegmentRecord& b) {
  for (int e = 0; e < plan.token_extrema; ++e) {
    a.low[e] = b.low[e] < a.low[e] ? b.low[e] : a.low[e];
    a.high[e] = b.high[e] > a.high[e] ? b.high[e] : a.high[e];
  }
  a.first_bad = first_of(a.first_bad, b.first_bad);
  if (plan.loss.active) extend_loss(a.loss, b.loss);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_RECORD_H_
