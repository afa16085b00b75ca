// Descriptions of the columns of columns.h and loss_columns.h, one row for
// each. From these rows derive how a column is cleared and folded, its place in
// a warp's memory (cuda/column_layout.h), the sums of a walk with its tiles in
// registers (cuda/step_columns.cuh), and the fields of BatchSums
// (batch_sums.cc). A column without a row does not compile.
#ifndef COUNTERWEIGHT_KERNELS_WALK_COLUMN_TABLE_H_
#define COUNTERWEIGHT_KERNELS_WALK_COLUMN_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/plan/columns.h"
#include "kernels/plan/features.h"
#include "kernels/plan/plan.h"
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

// The part of a plan that a column belongs to: a walk for a plan without that
// part does not touch the column. A warp's memory has the columns of the first
// part first, and so on, see KnownOffset().
enum class Part : uint8_t {
  kDrift,
  kTokenWeights,  // of levels TOKEN and PREFIX
  kRuleSums,
  kDecisions,  // what is left of weights and masks
  kProbabilities,
  kWeightAggregate,  // of sequence levels and prefixes
  kWeightSeen,       // of those, and of weights that wait for rules
  kWeightSeenHigh,   // of weights that wait for rules
  kRules,
  kRulePrefix,
  kRulePeers,  // of PeerSums, as kProbabilities
  kLossStatistics,
  kLoss,  // This part and those below belong to the loss pass.
  kLossSequenceSlope,
  kLossKl,
  kLossKlSequenceSlope,
  kLossPadding,
  kLossPeers,  // of PeerSums
  kLossKlPeers,
};
inline constexpr int kNumParts = static_cast<int>(Part::kLossKlPeers) + 1;

constexpr bool IsOfLossPass(Part part) { return part >= Part::kLoss; }

// The field of BatchSums that is the sum of the column itself; int64_t for a
// count, else double.
struct ColumnField {
  uint16_t offset;  // in BatchSums; a rule's column: the first rule's
  uint16_t stride;  // to the field of the next rule
};
inline constexpr ColumnField kNoField{UINT16_MAX, 0};

struct ColumnInfo {
  int column;
  Adds adds;
  Part part;
  // A walk with its tiles in registers adds to the column if it may have all of
  // the first features, and one of the second where there are any.
  uint32_t all;
  uint32_t any;
  ColumnField field;
};

// Extrema have the same parts and features.
struct ExtremumInfo {
  int extremum;
  Part part;
  uint32_t all;
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
    {kColumnTokens, Adds::kCount, Part::kDrift, 0, 0,
     COUNTERWEIGHT_FIELD(tokens)},
    {kColumnLogRatio, Adds::kExact, Part::kDrift, kFeatureMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.log_ratio)},
    {kColumnDenominator, Adds::kBlocks, Part::kDrift, kFeatureMetrics, 0,
     kNoField},
    {kColumnAbs, Adds::kBlocks, Part::kDrift, kFeatureMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.abs_log_ratio)},
    {kColumnSquared, Adds::kExact, Part::kDrift, kFeatureMetrics, 0, kNoField},
    {kColumnK3, Adds::kBlocks, Part::kDrift, kFeatureMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.k3)},
    {kColumnExcess, Adds::kBlocks, Part::kDrift, kFeatureMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.excess)},
    {kColumnExcessSquared, Adds::kBlocks, Part::kDrift, kFeatureMetrics, 0,
     COUNTERWEIGHT_FIELD(drift.excess_squared)},
    // All columns of the histogram.
    {kColumnHistogram, Adds::kCount, Part::kDrift, kFeatureMetrics, 0,
     kNoField},
    {kColumnAbsDifference, Adds::kExact, Part::kProbabilities,
     kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.abs_difference)},
    {kColumnSquaredDifference, Adds::kExact, Part::kProbabilities,
     kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.squared_difference)},
    {kColumnP, Adds::kBlocks, Part::kProbabilities, kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.p)},
    {kColumnQ, Adds::kBlocks, Part::kProbabilities, kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.q)},
    {kColumnPSquared, Adds::kBlocks, Part::kProbabilities,
     kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.p_squared)},
    {kColumnQSquared, Adds::kBlocks, Part::kProbabilities,
     kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.q_squared)},
    {kColumnPQ, Adds::kBlocks, Part::kProbabilities, kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_FIELD(peers.correction.probability.p_q)},
    {kColumnNonFinite, Adds::kDirect, Part::kDecisions, 0, 0, kNoField},
    {kColumnPositive, Adds::kDirect, Part::kDecisions, 0, 0, kNoField},
    {kColumnKept, Adds::kCount, Part::kDecisions, kFeatureRules, 0,
     COUNTERWEIGHT_FIELD(kept_tokens)},
    {kColumnZeroWeight, Adds::kCount, Part::kDecisions, 0,
     kFeatureVanishing | kFeatureZeroing,
     COUNTERWEIGHT_FIELD(zero_weight_tokens)},
    {kColumnWeight, Adds::kExact, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights, 0,
     COUNTERWEIGHT_FIELD(weight.weight)},
    {kColumnWeightSquared, Adds::kExact, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights, 0,
     COUNTERWEIGHT_FIELD(weight.weight_squared)},
    {kColumnWeightExcess, Adds::kBlocks, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights, 0,
     COUNTERWEIGHT_FIELD(weight.excess)},
    {kColumnWeightExcessSquared, Adds::kBlocks, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights, 0,
     COUNTERWEIGHT_FIELD(weight.excess_squared)},
    {kColumnRawExcess, Adds::kBlocks, Part::kTokenWeights, kFeatureOwnRatio, 0,
     kNoField},
    {kColumnWeightHigh, Adds::kCount, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights, 0,
     COUNTERWEIGHT_FIELD(weight.tokens_high)},
    {kColumnWeightLow, Adds::kCount, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights, 0,
     COUNTERWEIGHT_FIELD(weight.tokens_low)},
    {kColumnWeightAggregate, Adds::kExact, Part::kWeightAggregate,
     kFeatureRowWeights, 0, kNoField},
    {kColumnWeightSeen, Adds::kCount, Part::kWeightSeen, 0,
     kFeatureRowWeights | kFeatureLateWeights, kNoField},
    {kColumnWeightSeenHigh, Adds::kCount, Part::kWeightSeenHigh, 0,
     kFeatureRowWeights | kFeatureLateWeights, kNoField},
};

// Columns of each rule; `column` is a RuleColumn.
inline constexpr ColumnInfo kRuleColumnRows[] = {
    {kRuleSum, Adds::kEither, Part::kRuleSums, kFeatureRules, 0,
     COUNTERWEIGHT_RULE_FIELD(sum)},
    {kRuleClamped, Adds::kExact, Part::kRulePeers,
     kFeatureRules | kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_PEER_RULE_FIELD(clamped)},
    {kRuleClampedSquared, Adds::kExact, Part::kRulePeers,
     kFeatureRules | kFeaturePeerCorrection, 0,
     COUNTERWEIGHT_PEER_RULE_FIELD(clamped_squared)},
    {kRuleSeen, Adds::kCount, Part::kRules, kFeatureRules, 0,
     COUNTERWEIGHT_RULE_FIELD(seen_tokens)},
    {kRuleHigh, Adds::kCount, Part::kRules, kFeatureRules, 0,
     COUNTERWEIGHT_RULE_FIELD(tokens_high)},
    {kRuleLow, Adds::kCount, Part::kRules, kFeatureRules, 0,
     COUNTERWEIGHT_RULE_FIELD(tokens_low)},
    {kRuleFired, Adds::kCount, Part::kRules, kFeatureRules, 0, kNoField},
    {kRuleAggregate, Adds::kExact, Part::kRulePrefix,
     kFeatureRules | kFeaturePrefixes, 0, kNoField},
};

// `column` is a LossColumn.
inline constexpr uint32_t kLossMetrics = kFeatureLoss | kFeatureMetrics;
inline constexpr uint32_t kPeerLossMetrics = kLossMetrics | kFeaturePeerLoss;
inline constexpr ColumnInfo kLossColumnRows[] = {
    {kLossAggregate, Adds::kExact, Part::kLossStatistics, kFeatureRowLoss, 0,
     kNoField},
    {kLossSeen, Adds::kCount, Part::kLossStatistics, kFeatureRowLoss, 0,
     kNoField},
    {kLossAdvantage, Adds::kExact, Part::kLossStatistics,
     kFeatureRowLoss | kFeatureSurrogates, 0, kNoField},
    {kLossLogProb, Adds::kExact, Part::kLossStatistics, kFeatureSelection, 0,
     kNoField},
    {kLossLogWeight, Adds::kDirect, Part::kLossStatistics, 0, 0, kNoField},
    {kLossValue, Adds::kExact, Part::kLoss, kFeatureLoss, 0, kNoField},
    {kLossSequenceSlope, Adds::kExact, Part::kLossSequenceSlope,
     kFeatureLoss | kFeatureRowLoss, 0, kNoField},
    {kLossKl, Adds::kExact, Part::kLossKl, kFeatureLoss | kFeatureKl, 0,
     COUNTERWEIGHT_FIELD(loss.kl)},
    {kLossKlSequenceSlope, Adds::kExact, Part::kLossKlSequenceSlope,
     kFeatureLoss | kFeatureKl | kFeatureRowLoss, 0, kNoField},
    {kLossPadding, Adds::kExact, Part::kLossPadding, kFeaturePadding, 0,
     kNoField},
    {kLossPaddingKl, Adds::kExact, Part::kLossPadding, kFeaturePadding, 0,
     COUNTERWEIGHT_FIELD(peers.loss.padding_kl)},
    {kLossPaddingAdvantage, Adds::kExact, Part::kLossPadding, kFeaturePadding,
     0, kNoField},
    {kLossRefLogRatio, Adds::kExact, Part::kLossKlPeers,
     kPeerLossMetrics | kFeatureKl, 0,
     COUNTERWEIGHT_FIELD(peers.loss.ref_log_ratio)},
    {kLossLogRatio, Adds::kExact, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.log_ratio)},
    {kLossLogRatioKept, Adds::kExact, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.log_ratio_kept)},
    {kLossGradientSquared, Adds::kExact, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.gradient_squared)},
    {kLossAbsKept, Adds::kBlocks, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.abs_log_ratio_kept)},
    {kLossSafeKept, Adds::kBlocks, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.safe_log_ratio_kept)},
    {kLossRatio, Adds::kBlocks, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.ratio)},
    {kLossClippedRatio, Adds::kBlocks, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.clipped_ratio)},
    {kLossSlope, Adds::kBlocks, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.slope)},
    {kLossSlopeClipped, Adds::kBlocks, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.slope_clipped)},
    {kLossSlopeRejected, Adds::kBlocks, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.slope_rejected)},
    {kLossKlTokens, Adds::kCount, Part::kLossKl, kLossMetrics | kFeatureKl, 0,
     COUNTERWEIGHT_FIELD(loss.kl_tokens)},
    {kLossClipped, Adds::kCount, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.clipped)},
    {kLossClippedKept, Adds::kCount, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.clipped_kept)},
    {kLossHigh, Adds::kCount, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.high)},
    {kLossLow, Adds::kCount, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.low)},
    {kLossHighKept, Adds::kCount, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.high_kept)},
    {kLossLowKept, Adds::kCount, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.low_kept)},
    {kLossCappedKept, Adds::kCount, Part::kLoss, kLossMetrics, 0,
     COUNTERWEIGHT_FIELD(loss.capped_kept)},
    {kLossClippedZeroKept, Adds::kCount, Part::kLossPeers, kPeerLossMetrics, 0,
     COUNTERWEIGHT_FIELD(peers.loss.clipped_zero_kept)},
    {kLossPaddingHigh, Adds::kCount, Part::kLossPadding, kFeaturePadding, 0,
     COUNTERWEIGHT_FIELD(peers.loss.padding_high)},
    {kLossPaddingLow, Adds::kCount, Part::kLossPadding, kFeaturePadding, 0,
     COUNTERWEIGHT_FIELD(peers.loss.padding_low)},
};

#undef COUNTERWEIGHT_FIELD
#undef COUNTERWEIGHT_RULE_FIELD
#undef COUNTERWEIGHT_PEER_RULE_FIELD

inline constexpr ExtremumInfo kTokenExtremumRows[] = {
    {kExtremumLogRatio, Part::kDrift, kFeatureMetrics},
    {kExtremumDifference, Part::kProbabilities, kFeaturePeerCorrection},
    {kExtremumWeight, Part::kTokenWeights,
     kFeatureMetrics | kFeatureTokenWeights},
    // Those of all rules.
    {kExtremumRules, Part::kRules, kFeatureRules},
};
inline constexpr ExtremumInfo kLossExtremumRows[] = {
    {kLossExtremumRatio, Part::kLoss, kLossMetrics},
    {kLossExtremumAdvantage, Part::kLoss, kLossMetrics},
    {kLossExtremumPaddingRatio, Part::kLossPadding, kFeaturePadding},
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

constexpr bool EveryColumnHasARow() {
  for (int c = 0; c < kNumColumns; ++c) {
    if (kColumnTable.columns[c].adds == Adds::kNothing) return false;
  }
  for (int e = 0; e < kNumExtrema; ++e) {
    if (kColumnTable.extrema[e].extremum != e) return false;
  }
  return true;
}
static_assert(EveryColumnHasARow());

constexpr bool IsCount(int column) {
  return kColumnTable.columns[column].adds == Adds::kCount;
}

// A sum of whole numbers, which is exact in any order.
constexpr bool IsWhole(int column) {
  return IsCount(column) || column == kColumnNonFinite ||
         column == kColumnPositive;
}

// The rule that a column or an extremum belongs to; -1 if it is no rule's.
constexpr int RuleOfColumn(int column) {
  if (column < kColumnRules || column >= kColumnLoss) return -1;
  return (column - kColumnRules) / kNumRuleColumns;
}
constexpr int RuleOfExtremum(int extremum) {
  if (extremum < kExtremumRules || extremum >= kExtremumLoss) return -1;
  return extremum - kExtremumRules;
}

// True if the plan has the part, of rule `rule` where that is not -1.
bool HasPart(const Plan& plan, Part part, int rule);

// True if rows of a walk of this plan have the column.
bool HasColumn(const Plan& plan, int column);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_COLUMN_TABLE_H_
