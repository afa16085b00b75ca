// Sums of a segment, a row, a group of rows and a batch, and the fold of two of
// them.
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
  // prescales_advantages: what advantages are multiplied by, else 1.
  double advantage_scale;
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

// A row, or many rows folded.
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

// Columns [begin, end): of the statistics pass, or of the loss pass.
COUNTERWEIGHT_HD void fold_loss(LossRecord& a, const LossRecord& b, int begin,
                                int end) {
  for (int c = begin; c < end; ++c) a.sums[c] += b.sums[c];
  if (end != kNumLossColumns) return;
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

// a = a + b, a the segment before b.
COUNTERWEIGHT_HD void fold(const Plan& plan, SegmentRecord& a,
                           const SegmentRecord& b) {
  for (int c = 0; c < plan.token_columns; ++c) a.sums[c] += b.sums[c];
  for (int e = 0; e < plan.token_extrema; ++e) {
    a.low[e] = b.low[e] < a.low[e] ? b.low[e] : a.low[e];
    a.high[e] = b.high[e] > a.high[e] ? b.high[e] : a.high[e];
  }
  a.first_bad = b.first_bad < a.first_bad ? b.first_bad : a.first_bad;
  if (plan.loss.active) fold_loss(a.loss, b.loss, 0, kNumLossColumns);
}

// f(member of RowRecord, elements that the plan has, how two become one) for
// each array of sums or extrema.
template <class F>
COUNTERWEIGHT_HD void for_each_array(const Plan& plan, F f) {
  const auto sum = [](double a, double b) { return a + b; };
  const auto low = [](double a, double b) { return b < a ? b : a; };
  const auto high = [](double a, double b) { return b > a ? b : a; };
  f(&RowRecord::token_sums, plan.token_columns, sum);
  f(&RowRecord::row_sums, plan.row_columns, sum);
  f(&RowRecord::token_low, plan.token_extrema, low);
  f(&RowRecord::token_high, plan.token_extrema, high);
  f(&RowRecord::row_low, plan.row_extrema, low);
  f(&RowRecord::row_high, plan.row_extrema, high);
  if (!plan.loss.active) return;
  f(&RowRecord::loss_sums, kNumLossColumns, sum);
  f(&RowRecord::row_loss_sums, kNumRowLossColumns, sum);
  f(&RowRecord::row_loss_low, kNumRowLossExtrema, low);
  f(&RowRecord::row_loss_high, kNumRowLossExtrema, high);
}

COUNTERWEIGHT_HD int64_t first_of(int64_t a, int64_t b) {
  return b < a ? b : a;
}

// a = a + b, a the rows before b.
COUNTERWEIGHT_HD void fold(const Plan& plan, RowRecord& a, const RowRecord& b) {
  for_each_array(plan, [&](auto member, int count, auto join) {
    for (int i = 0; i < count; ++i) {
      (a.*member)[i] = join((a.*member)[i], (b.*member)[i]);
    }
  });
  a.first_bad = first_of(a.first_bad, b.first_bad);
}

// a = (a + b) + (c + d), rows in order.
COUNTERWEIGHT_HD void fold(const Plan& plan, RowRecord& a, const RowRecord& b,
                           const RowRecord& c, const RowRecord& d) {
  for_each_array(plan, [&](auto member, int count, auto join) {
    COUNTERWEIGHT_IVDEP
    for (int i = 0; i < count; ++i) {
      (a.*member)[i] = join(join((a.*member)[i], (b.*member)[i]),
                            join((c.*member)[i], (d.*member)[i]));
    }
  });
  a.first_bad = first_of(first_of(a.first_bad, b.first_bad),
                         first_of(c.first_bad, d.first_bad));
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_RECORD_H_
