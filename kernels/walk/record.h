// What a segment, a row, a group of rows and a batch add up to, and how two of
// them fold into one.
#ifndef COUNTERWEIGHT_KERNELS_WALK_RECORD_H_
#define COUNTERWEIGHT_KERNELS_WALK_RECORD_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/walk/columns.h"
#include "kernels/walk/plan.h"

namespace counterweight::kernels {

// Token columns and extrema of a segment or a row.
struct SegmentRecord {
  double sums[kMaxTokenColumns];
  float low[kMaxTokenExtrema];
  float high[kMaxTokenExtrema];
  // Least (position in the batch * 8 + role * 2 + (input ? 0 : 1)) of a
  // non-finite number; kNoBadToken if there is none.
  int64_t first_bad;
};

inline constexpr int64_t kNoBadToken = INT64_MAX;

// What a row's sums decide.
struct RowState {
  uint32_t fired;  // sequence rules whose statistic is outside
  float weight;    // sequence levels: the bounded weight
};

// Where a PREFIX statistic of a segment starts: what earlier segments of the
// row hold.
struct PrefixBase {
  double sum;
  double count;
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
};

inline namespace COUNTERWEIGHT_ISA {

// A segment without tokens.
COUNTERWEIGHT_HD void clear(const Plan& plan, SegmentRecord& record) {
  for (int c = 0; c < plan.token_columns; ++c) record.sums[c] = 0.0;
  for (int e = 0; e < plan.token_extrema; ++e) {
    record.low[e] = __builtin_inff();
    record.high[e] = -__builtin_inff();
  }
  record.first_bad = kNoBadToken;
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
}

// a = a + b, a the rows before b.
COUNTERWEIGHT_HD void fold(const Plan& plan, RowRecord& a, const RowRecord& b) {
  for (int c = 0; c < plan.token_columns; ++c) {
    a.token_sums[c] += b.token_sums[c];
  }
  for (int c = 0; c < plan.row_columns; ++c) a.row_sums[c] += b.row_sums[c];
  for (int e = 0; e < plan.token_extrema; ++e) {
    a.token_low[e] =
        b.token_low[e] < a.token_low[e] ? b.token_low[e] : a.token_low[e];
    a.token_high[e] =
        b.token_high[e] > a.token_high[e] ? b.token_high[e] : a.token_high[e];
  }
  for (int e = 0; e < plan.row_extrema; ++e) {
    a.row_low[e] = b.row_low[e] < a.row_low[e] ? b.row_low[e] : a.row_low[e];
    a.row_high[e] =
        b.row_high[e] > a.row_high[e] ? b.row_high[e] : a.row_high[e];
  }
  a.first_bad = b.first_bad < a.first_bad ? b.first_bad : a.first_bad;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RECORD_H_
