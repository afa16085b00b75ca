// The sums of a batch: one set from which every system's metrics are computed.
// PODs. Sums over nothing are 0, minima +infinity, maxima -infinity.
//
// m = response_mask (after the non-finite policy DROP), n_i = tokens of row i
// in m, V = rows with n_i > 0, l = log ratio of the spec's drift source.
#ifndef COUNTERWEIGHT_KERNELS_SUMS_H_
#define COUNTERWEIGHT_KERNELS_SUMS_H_

#include <cstdint>

#include "kernels/loss_sums.h"
#include "kernels/peer_sums.h"
#include "kernels/spec.h"
#include "kernels/staleness_sums.h"

namespace counterweight::kernels {

// The clamp that verl, SkyRL and others put on log ratios before exp, nats.
inline constexpr double kSafetyClamp = 20.0;

// Upper edges of the histogram buckets of log ratios, inclusive; one more
// bucket has no upper edge.
inline constexpr int kNumHistogramEdges = 10;
inline constexpr float kHistogramEdges[kNumHistogramEdges] = {
    -1.0f, -0.3f, -0.1f, -0.03f, -0.01f, 0.01f, 0.03f, 0.1f, 0.3f, 1.0f};

struct DriftSums {
  // Tokens.
  double log_ratio;         // sum l, each addend exact in float64
  double abs_log_ratio;     // sum |l|
  double k2;                // sum l^2 / 2
  double k3;                // sum exp(l) - 1 - l, unclamped
  double excess;            // sum u, u = exp(clamp(l, 20)) - 1
  double excess_squared;    // sum u^2
  Extrema log_ratio_range;  // of l
  int64_t histogram[kNumHistogramEdges + 1];  // tokens by l

  // Rows of V. a_i = mean of numerator log-probs, b_i of denominator ones,
  // s_i = sum l, e_i = -s_i / n_i = log(PPL ratio).
  double numerator_ppl;              // sum exp(-a_i)
  double denominator_ppl;            // sum exp(-b_i)
  double log_ppl_difference;         // sum e_i
  double abs_log_ppl_difference;     // sum |e_i|
  double ppl_ratio_excess;           // sum exp(e_i) - 1
  double chi2_sequence;              // sum exp(2 clamp(s_i, 20)) - 1
  Extrema sequence_log_ratio_range;  // of s_i
  int64_t sequence_histogram[kNumHistogramEdges + 1];  // rows by s_i / n_i
};

// Bounded weights w before normalization, over m; raw = before the bound, after
// the clamps. upper and lower are the spec's; where lower is absent and upper
// is not, "low" counts against 1 / upper.
struct WeightSums {
  double weight;          // sum over tokens of w
  double weight_squared;  // sum over tokens of w^2
  double excess;  // sum over tokens of w - 1, accurate where w is near 1
  double excess_squared;  // sum over tokens of (w - 1)^2
  // The same as the first two, of tokens that no rule dropped or zeroed.
  double kept_weight, kept_weight_squared;
  Extrema range;           // of w over tokens
  int64_t tokens_high;     // raw > upper
  int64_t tokens_low;      // raw < lower, or 1 / upper where lower is absent
  int64_t tokens_outside;  // raw outside [lower, upper] of the spec
  // TOKEN with after_rule > 0, else 0: tokens that the first after_rule rules
  // left, and those of them with raw > upper.
  int64_t after_rule_tokens, after_rule_tokens_high;
  // SEQUENCE, GEOMETRIC: rows of V with a log ratio before the last clamp > log
  // upper.
  int64_t sequences_log_high;
  // Rows of V, p_i = mean of w over the row.
  double sequence_excess;  // sum p_i - 1
  Extrema sequence_range;  // of p_i
  // The mean that weights were divided by, 1 if they were not; see WeightSpec.
  double normalizer;
};

// One rule; for ALL x_t and q_i are the row's mean of the estimator, and a row
// is high (low) with all its tokens if any of them is. x_t = its statistic at
// token t (sequence rules: the row's, repeated), over the tokens the rule saw.
// q_i = the row's statistic (token rules: row mean of x) over the rows it saw
// non-empty.
struct RuleSums {
  int64_t seen_tokens;
  int64_t seen_sequences;
  int64_t tokens_high;  // x > upper
  int64_t tokens_low;   // x < lower
  int64_t rows_high;    // rows with q > upper; ALL: with any token above
  int64_t rows_low;
  double sum;      // of x
  Extrema range;   // of x; sequence rules: of q
  double row_sum;  // of q
  // Effects of the rule, its condition included.
  int64_t dropped_tokens;
  int64_t dropped_sequences;  // rows with at least one such token
};

struct BatchSums {
  int64_t num_sequences;       // B
  int64_t nonempty_sequences;  // |V|
  int64_t tokens;              // sum n_i
  int64_t kept_tokens;         // in the keep mask
  int64_t kept_sequences;      // rows with a kept token
  // Rows of V that lost at least one token to a rule's DROP.
  int64_t touched_sequences;
  int64_t zero_weight_tokens;  // in m with a final weight of exactly 0
  int64_t non_finite_tokens;   // by policy DROP or NEUTRALIZE, or unknown
  // Tokens in m with a log-prob above 0 among those that the spec reads.
  int64_t positive_log_probs;
  DriftSums drift;
  WeightSums weight;
  RuleSums rules[kMaxRules];
  LossSums loss;
  PeerSums peers;
  // All zero without versions; MeasureStaleness fills it.
  StalenessSums staleness;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SUMS_H_
