// Descriptions of the columns of columns.h and loss_columns.h, one row for
// each. From these rows derive how a column is cleared and folded, its place in
// a warp's memory (cuda/column_layout.h), the sums of a walk with its tiles in
// registers (cuda/step_columns.cuh), and the fields of BatchSums
// (batch_sums.cc). A column without a row does not compile.
#ifndef COUNTERWEIGHT_KERNELS_WALK_COLUMN_TABLE_H_
#define COUNTERWEIGHT_KERNELS_WALK_COLUMN_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/plan/columns.h"
#include "kernels/plan/needs.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// How the addends of a column are added up.
enum class Adds : uint8_t {
  kNothing,  // No row describes the column.
  // Whole numbers. They stay float32 within a segment, where a lane sees at
  // most 128 tokens: nothing is rounded, and a quarter of the work is left.
  kCount,
  kBlocks,  // Blocks of 8 in float32, then float64.
  kExact,   // Each addend in float64.
  kEither,  // As kExact or as kBlocks: the plan decides.
  kDirect,  // As kExact, by walks that touch the column for a few tokens only.
};

// The field of BatchSums that is the sum of the column itself; int64_t for a
// count, else double.
struct ColumnField {
  uint16_t offset;  // in BatchSums; a rule's column: the first rule's
  uint16_t stride;  // to the field of the next rule
};
inline constexpr ColumnField kNoField{UINT16_MAX, 0};

// A walk adds to the column where its plan needs all of the first needs, and
// one of the second unless that is 0.
struct ColumnInfo {
  int column;
  Adds adds;
  Needs all;
  Needs any;
  ColumnField field;
  // Else settle_segment() or decide_row() fills it where the plan needs one of
  // these.
  Needs settled = 0;
};

struct ExtremumInfo {
  int extremum;
  Needs all;
  Needs any;
};

#define COUNTERWEIGHT_FIELD(field) \
  ColumnField { static_cast<uint16_t>(offsetof(BatchSums, field)), 0 }
#define COUNTERWEIGHT_RULE_FIELD(field)                         \
  ColumnField {                                                 \
    static_cast<uint16_t>(offsetof(BatchSums, rules[0].field)), \
        static_cast<uint16_t>(sizeof(RuleSums))                 \
  }
#define COUNTERWEIGHT_PEER_RULE_FIELD(field)                   \
  ColumnField {                                                \
    static_cast<uint16_t>(                                     \
        offsetof(BatchSums, peers.correction.rules[0].field)), \
        static_cast<uint16_t>(sizeof(PeerRuleSums))            \
  }

inline constexpr ColumnInfo kTokenColumnRows[] = {
    {kColumnTokens, Adds::kCount, kNeedTokens, 0, COUNTERWEIGHT_FIELD(tokens)},
    {kColumnLogRatio, Adds::kExact, kNeedMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.log_ratio)},
    {kColumnDenominator, Adds::kBlocks, kNeedMetrics, 0, kNoField},
    {kColumnAbs, Adds::kBlocks, kNeedMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.abs_log_ratio)},
    {kColumnSquared, Adds::kExact, kNeedMetrics, 0, kNoField},
    {kColumnK3, Adds::kBlocks, kNeedMetrics, 0, COUNTERWEIGHT_FIELD(drift.k3)},
    {kColumnExcess, Adds::kBlocks, kNeedMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.excess)},
    {kColumnExcessSquared, Adds::kBlocks, kNeedMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.excess_squared)},
    // All columns of the histogram.
    {kColumnHistogram, Adds::kCount, kNeedMetrics, 0, kNoField},
    {kColumnAbsDifference, Adds::kExact, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.abs_difference)},
    {kColumnSquaredDifference, Adds::kExact, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.squared_difference)},
    {kColumnP, Adds::kBlocks, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.p)},
    {kColumnQ, Adds::kBlocks, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.q)},
    {kColumnPSquared, Adds::kBlocks, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.p_squared)},
    {kColumnQSquared, Adds::kBlocks, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.q_squared)},
    {kColumnPQ, Adds::kBlocks, kNeedPeerSums, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.p_q)},
    {kColumnNonFinite, Adds::kDirect, kNeedTokens, 0, kNoField},
    {kColumnPositive, Adds::kDirect, kNeedTokens, 0, kNoField},
    {kColumnKept, Adds::kCount, kNeedRules, 0, COUNTERWEIGHT_FIELD(kept_tokens),
     /*settled=*/kNeedTokens},
    {kColumnZeroWeight, Adds::kCount, 0, kNeedVanishing | kNeedZeroing,
     COUNTERWEIGHT_FIELD(zero_weight_tokens), /*settled=*/kNeedRowWeights},
    {kColumnWeight, Adds::kExact, kNeedMetrics, kAnyTokenWeights,
     COUNTERWEIGHT_FIELD(weight.weight)},
    {kColumnWeightSquared, Adds::kExact, kNeedMetrics, kAnyTokenWeights,
     COUNTERWEIGHT_FIELD(weight.weight_squared)},
    {kColumnWeightExcess, Adds::kBlocks, kNeedMetrics, kAnyTokenWeights,
     COUNTERWEIGHT_FIELD(weight.excess)},
    {kColumnWeightExcessSquared, Adds::kBlocks, kNeedMetrics, kAnyTokenWeights,
     COUNTERWEIGHT_FIELD(weight.excess_squared)},
    // Where weights are by row, the walk counts tokens.
    {kColumnKeptWeight, Adds::kExact, kNeedMetrics | kNeedTokenHits,
     kAnyTokenWeights | kNeedZeroing, COUNTERWEIGHT_FIELD(weight.kept_weight)},
    {kColumnKeptWeightSquared, Adds::kExact, kNeedMetrics | kNeedTokenHits,
     kAnyTokenWeights, COUNTERWEIGHT_FIELD(weight.kept_weight_squared)},
    {kColumnRawExcess, Adds::kBlocks, kNeedOwnRatio, 0, kNoField,
     /*settled=*/kNeedTokenWeights},
    {kColumnWeightHigh, Adds::kCount, kNeedMetrics, kAnyTokenWeights,
     COUNTERWEIGHT_FIELD(weight.tokens_high)},
    {kColumnWeightLow, Adds::kCount, kNeedMetrics, kAnyTokenWeights,
     COUNTERWEIGHT_FIELD(weight.tokens_low)},
    {kColumnWeightAggregate, Adds::kExact, 0, kAggregates, kNoField},
    {kColumnWeightSeen, Adds::kCount, 0, kAggregates | kNeedLateWeights,
     kNoField},
    {kColumnWeightSeenHigh, Adds::kCount, kNeedTokenWeights | kNeedLateWeights,
     0, kNoField},
};

// Columns of each rule; `column` is a RuleColumn.
inline constexpr ColumnInfo kRuleColumnRows[] = {
    {kRuleSum, Adds::kEither, kNeedRules, 0, COUNTERWEIGHT_RULE_FIELD(sum)},
    {kRuleClamped, Adds::kExact, kNeedRules | kNeedPeerSums, 0,
     COUNTERWEIGHT_PEER_RULE_FIELD(clamped)},
    {kRuleClampedSquared, Adds::kExact, kNeedRules | kNeedPeerSums, 0,
     COUNTERWEIGHT_PEER_RULE_FIELD(clamped_squared)},
    {kRuleSeen, Adds::kCount, kNeedRules, 0,
     COUNTERWEIGHT_RULE_FIELD(seen_tokens)},
    {kRuleHigh, Adds::kCount, kNeedRules, 0,
     COUNTERWEIGHT_RULE_FIELD(tokens_high)},
    {kRuleLow, Adds::kCount, kNeedRules, 0,
     COUNTERWEIGHT_RULE_FIELD(tokens_low)},
    {kRuleFired, Adds::kCount, kNeedRules, 0, kNoField},
    {kRuleAggregate, Adds::kExact, kNeedRules | kNeedPrefixes, 0, kNoField},
};

// `column` is a LossColumn.
inline constexpr Needs kLossMetrics = kNeedLoss | kNeedMetrics;
inline constexpr Needs kLossKlMetrics = kLossMetrics | kNeedKl;
inline constexpr ColumnInfo kLossColumnRows[] = {
    {kLossAggregate, Adds::kExact, 0, kLossStatistics, kNoField},
    {kLossSeen, Adds::kCount, 0, kLossStatistics, kNoField},
    {kLossAdvantage, Adds::kExact, kNeedSurrogates, kLossStatistics, kNoField},
    {kLossLogProb, Adds::kExact, kNeedSelection, 0, kNoField},
    {kLossLogWeight, Adds::kDirect, 0, kLossStatistics, kNoField},
    {kLossValue, Adds::kExact, kNeedLoss, 0, kNoField},
    {kLossSequenceSlope, Adds::kExact, kNeedRowGradient, 0, kNoField},
    {kLossKl, Adds::kExact, kNeedKl, 0, COUNTERWEIGHT_FIELD(loss.kl)},
    {kLossKlSequenceSlope, Adds::kExact, kNeedKl | kNeedRowGradient, 0,
     kNoField},
    {kLossPadding, Adds::kExact, kNeedPadding, 0, kNoField},
    {kLossPaddingKl, Adds::kExact, kNeedPadding, 0,
     COUNTERWEIGHT_FIELD(peers.loss.padding_kl)},
    {kLossPaddingAdvantage, Adds::kExact, kNeedPadding, 0, kNoField},
    {kLossRefLogRatio, Adds::kExact, kNeedPeerLoss | kNeedKl, 0,
     COUNTERWEIGHT_FIELD(peers.loss.ref_log_ratio)},
    {kLossLogRatio, Adds::kExact, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.log_ratio)},
    {kLossLogRatioKept, Adds::kExact, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.log_ratio_kept)},
    {kLossGradientSquared, Adds::kExact, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.gradient_squared)},
    {kLossAbsKept, Adds::kBlocks, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.abs_log_ratio_kept)},
    {kLossSafeKept, Adds::kBlocks, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.safe_log_ratio_kept)},
    {kLossRatio, Adds::kBlocks, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.ratio)},
    {kLossClippedRatio, Adds::kBlocks, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.clipped_ratio)},
    {kLossSlope, Adds::kBlocks, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.slope)},
    {kLossSlopeClipped, Adds::kBlocks, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.slope_clipped)},
    {kLossSlopeRejected, Adds::kBlocks, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.slope_rejected)},
    {kLossKlTokens, Adds::kCount, kLossKlMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.kl_tokens)},
    {kLossClipped, Adds::kCount, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.clipped)},
    {kLossClippedKept, Adds::kCount, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.clipped_kept)},
    {kLossHigh, Adds::kCount, kLossMetrics, 0, COUNTERWEIGHT_FIELD(loss.high)},
    {kLossLow, Adds::kCount, kLossMetrics, 0, COUNTERWEIGHT_FIELD(loss.low)},
    {kLossHighKept, Adds::kCount, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.high_kept)},
    {kLossLowKept, Adds::kCount, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.low_kept)},
    {kLossCappedKept, Adds::kCount, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.capped_kept)},
    {kLossClippedZeroKept, Adds::kCount, kNeedPeerLoss, 0,
     COUNTERWEIGHT_FIELD(peers.loss.clipped_zero_kept)},
    {kLossPaddingHigh, Adds::kCount, kNeedPadding, 0,
     COUNTERWEIGHT_FIELD(peers.loss.padding_high)},
    {kLossPaddingLow, Adds::kCount, kNeedPadding, 0,
     COUNTERWEIGHT_FIELD(peers.loss.padding_low)},
};

#undef COUNTERWEIGHT_FIELD
#undef COUNTERWEIGHT_RULE_FIELD
#undef COUNTERWEIGHT_PEER_RULE_FIELD

inline constexpr ExtremumInfo kTokenExtremumRows[] = {
    {kExtremumLogRatio, kNeedMetrics, 0},
    {kExtremumDifference, kNeedPeerSums, 0},
    {kExtremumWeight, kNeedMetrics, kAnyTokenWeights},
    // Those of all rules.
    {kExtremumRules, kNeedRules, 0},
};
inline constexpr ExtremumInfo kLossExtremumRows[] = {
    {kLossExtremumRatio, kLossMetrics, 0},
    {kLossExtremumAdvantage, kLossMetrics, 0},
    {kLossExtremumPaddingRatio, kNeedPadding, 0},
};

// The rows by column and extremum.
struct ColumnTable {
  ColumnInfo columns[kNumColumns];
  ExtremumInfo extrema[kNumExtrema];
};

constexpr ColumnTable MakeColumnTable() {
  ColumnTable table{};
  const auto put = [&table](int column, ColumnInfo row) {
    row.column = column;
    table.columns[column] = row;
  };
  const auto put_extremum = [&table](int extremum, ExtremumInfo row) {
    row.extremum = extremum;
    table.extrema[extremum] = row;
  };
  for (const ColumnInfo& row : kTokenColumnRows) {
    const bool is_histogram = row.column == kColumnHistogram;
    for (int i = 0; i < (is_histogram ? kNumHistogramEdges : 1); ++i) {
      put(row.column + i, row);
    }
  }
  for (int rule = 0; rule < kMaxRules; ++rule) {
    for (const ColumnInfo& row : kRuleColumnRows) {
      put(RuleColumnIndex(rule, static_cast<RuleColumn>(row.column)), row);
    }
  }
  for (const ColumnInfo& row : kLossColumnRows) {
    put(kColumnLoss + row.column, row);
  }
  for (const ExtremumInfo& row : kTokenExtremumRows) {
    const bool is_rules = row.extremum == kExtremumRules;
    for (int i = 0; i < (is_rules ? kMaxRules : 1); ++i) {
      put_extremum(row.extremum + i, row);
    }
  }
  for (const ExtremumInfo& row : kLossExtremumRows) {
    put_extremum(kExtremumLoss + row.extremum, row);
  }
  return table;
}

inline constexpr ColumnTable kColumnTable = MakeColumnTable();

// A row names what its column is needed for.
template <class Row>
constexpr bool NamesANeed(const Row& row) {
  return (row.all | row.any) != 0;
}

constexpr bool EveryColumnHasARow() {
  for (int c = 0; c < kNumColumns; ++c) {
    if (kColumnTable.columns[c].adds == Adds::kNothing) return false;
    if (!NamesANeed(kColumnTable.columns[c])) return false;
  }
  for (int e = 0; e < kNumExtrema; ++e) {
    if (kColumnTable.extrema[e].extremum != e) return false;
    if (!NamesANeed(kColumnTable.extrema[e])) return false;
  }
  return true;
}
static_assert(EveryColumnHasARow());

// True if a walk of a plan with `needs` adds to the row's column or extremum.
template <class Row>
constexpr COUNTERWEIGHT_HD bool IsNeeded(const Row& row, Needs needs) {
  return (needs & row.all) == row.all &&
         (row.any == 0 || (needs & row.any) != 0);
}

constexpr bool IsCount(int column) {
  return kColumnTable.columns[column].adds == Adds::kCount;
}

// A sum of whole numbers, which is exact in any order.
constexpr bool IsWhole(int column) {
  return IsCount(column) || column == kColumnNonFinite ||
         column == kColumnPositive;
}

// The rule that a column or an extremum belongs to; -1 if it is no rule's.
constexpr COUNTERWEIGHT_HD int RuleOfColumn(int column) {
  if (column < kColumnRules || column >= kColumnLoss) return -1;
  return (column - kColumnRules) / kNumRuleColumns;
}
constexpr COUNTERWEIGHT_HD int RuleOfExtremum(int extremum) {
  if (extremum < kExtremumRules || extremum >= kExtremumLoss) return -1;
  return extremum - kExtremumRules;
}

// True for what the pass over the loss fills, after the statistics.
constexpr COUNTERWEIGHT_HD bool IsOfLossPass(int column) {
  return column >= kColumnLoss + kNumLossStatistics;
}
constexpr COUNTERWEIGHT_HD bool IsExtremumOfLossPass(int extremum) {
  return extremum >= kExtremumLoss;
}

// True if the records of rows that a plan with `needs` and `num_rules` rules
// walks have the column.
constexpr COUNTERWEIGHT_HD bool HasColumn(Needs needs, int num_rules,
                                          int column) {
  const ColumnInfo& row = kColumnTable.columns[column];
  return RuleOfColumn(column) < num_rules &&
         (IsNeeded(row, needs) || (needs & row.settled) != 0);
}
constexpr COUNTERWEIGHT_HD bool HasExtremum(Needs needs, int num_rules,
                                            int extremum) {
  return RuleOfExtremum(extremum) < num_rules &&
         IsNeeded(kColumnTable.extrema[extremum], needs);
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_COLUMN_TABLE_H_
