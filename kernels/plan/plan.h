// A spec prepared for the walk: every constant is computed once, and every
// question that does not depend on a token is answered once. A POD, passed to
// devices by value.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_PLAN_H_
#define COUNTERWEIGHT_KERNELS_PLAN_PLAN_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/plan/columns.h"
#include "kernels/plan/loss_plan.h"
#include "kernels/plan/needs.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// Rows are summed in segments of so many positions: part of the order of
// addition.
inline constexpr int64_t kSegmentPositions = 4096;

constexpr int64_t SegmentsOf(int64_t positions) {
  return (positions + kSegmentPositions - 1) / kSegmentPositions;
}

// exp, expm1, k2 and k3 at both ends of a clamp [-clamp, clamp]: the values of
// a token beyond it.
struct ClampTerms {
  float clamp;
  float exp_low, exp_high;
  float expm1_low, expm1_high;
  float k2;
  float k3_low, k3_high;
};

struct RulePlan {
  RejectionRule rule;
  ClampTerms clamp;
  // Bounds for statistics that are float32 (TOKEN, MAX, ALL): the spec's,
  // rounded to nearest. A log ratio of float32(log 2) is inside [1/2, 2].
  float lower, upper;
  // The interval of RuleSums::clamped.
  double clamped_lower, clamped_upper;
  bool is_sequence;
  bool is_conditional;
  // As kEstimatesLogRatio, kAggregatesSum, both, and kAggregatesCounts.
  bool is_log_ratio;
  bool sums;
  bool sums_ratios;
  bool counts;
  // Sequence rules: statistics need to know which tokens of a row it hits,
  // which takes one more pass over the row. For the others decide_row() settles
  // the columns when the row is over.
  bool hits_in_statistics;
  // PREFIX_MEAN: index among the plan's prefixes, else -1.
  int32_t prefix;
};

struct WeightPlan {
  WeightSpec spec;
  // The clamp of a token's logarithm: for kPrefix the aggregate's, else the
  // tighter of both.
  ClampTerms clamp;
  // Ends of a weight and of its distance from 1: the clamp's or, where the
  // bounds truncate, theirs.
  float least, most;
  float least_excess, most_excess;
  // True if the bounds set weights to 0.
  bool masks;
  // By e^l, whatever the clamp: the ratio is above the upper bound if it is
  // > high_above, and below the lower one unless it is >= low_from.
  float high_above, low_from;
  // As low_from, of the statistics' lower threshold.
  float counts_low_from;
  // True if a weight can be 0 without any rule.
  bool can_vanish;
  // True if the clamped ratio is the drift's.
  bool is_drift;
  double lower_log, upper_log, low_threshold_log;
  double low_threshold64;
  int32_t prefix;  // kPrefix: index among the plan's prefixes, else -1
};

struct Plan {
  Needs needs;
  CorrectionSpec spec;
  WeightPlan weight;
  RulePlan rules[kMaxRules];
  LossPlan loss;
  ClampTerms safety;                          // kSafetyClamp
  float histogram_edges[kNumHistogramEdges];  // kHistogramEdges
  // Bit s: RatioSource s is read. Bit r: InputRole r is read.
  uint32_t sources;
  uint32_t inputs;
  // Sources with exponentials that statistics or outputs need, subsets of
  // `sources`.
  uint32_t statistics_exps;
  uint32_t output_exps;
  // Sources with a use of e^l - 1 or k3.
  uint32_t whole_exps;
  // Prefix means, numbered in the order of evaluation.
  int32_t num_prefixes;
  // True if metrics are wanted or an output depends on a mean over the batch.
  bool measures;
  // Passes over a row's statistics until every decision is known; at most
  // in_order_passes where its segments are walked in order, so that each starts
  // from the running means of those before it.
  int32_t passes;
  int32_t in_order_passes;
  // True if outputs, the loss's included, depend on no sum of their row: one
  // pass can write them.
  bool single_pass;
  // True if outputs depend on sequence rules that drop whole rows alone: one
  // pass writes them as if none fired, which is the common case, and rows where
  // one fired are written again.
  bool speculates;
  // The same for rows that are walked segment by segment.
  bool in_order_single_pass;
  bool in_order_speculates;
  // True if the walk of the loss reads the mask and the advantages alone, see
  // RowRatioLoss.
  bool row_ratio_alone;
  // True if weights by token of the drift's ratio are all that is wanted, see
  // WeightsAlone.
  bool weights_alone;
  int32_t token_columns;
  int32_t token_extrema;
  int32_t row_columns;
  int32_t row_extrema;
};

inline constexpr int kMaxPrefixes = kMaxRules + 1;

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_PLAN_H_
