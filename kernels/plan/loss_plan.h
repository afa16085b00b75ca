// A loss prepared for the walk, and its whole-batch inputs. PODs, passed to
// devices by value.
#ifndef COUNTERWEIGHT_KERNELS_PLAN_LOSS_PLAN_H_
#define COUNTERWEIGHT_KERNELS_PLAN_LOSS_PLAN_H_

#include <cstdint>

#include "kernels/spec.h"

namespace counterweight::kernels {

// exp, expm1 and k3 at both ends of an interval of log ratios.
struct IntervalTerms {
  float lower, upper;
  float exp_lower, exp_upper;
  float expm1_lower, expm1_upper;
  float k3_lower, k3_upper;
};

struct LossPlan {
  LossSpec spec;
  bool active;
  // The loss reads the ratio r, and so exp of the source.
  bool has_ratio;
  // V is multiplied by the weight at each token.
  bool weighs_tokens;
  // Tokens need sums of their row first, factors included.
  bool by_row;
  // A row's tokens share the gradient that the loss pass summed.
  bool needs_row_gradient;
  // Tokens need sums of the whole batch first.
  bool by_batch;
  // Dropped tokens count, and there may be some.
  bool counts_dropped;
  // Tokens are chosen from the whole batch.
  bool selects;
  // As kTraitRowBySign.
  bool row_by_sign;
  // One r for all tokens of a row, or none.
  bool ratio_of_row;
  // As kTraitExcess.
  bool reads_excess;
  // The row's or the batch's advantages are summed.
  bool sums_advantages;
  bool has_kl;
  // The penalty reads exp of a source of its own: for
  // KlSpec::gradient_ratio_cap, in float32, or KlSpec::has_own_ratio.
  bool has_kl_ratio;
  RatioSource kl_ratio_source;
  float kl_ratio_cap;
  // The penalty is not of the reference: KlSpec::source.
  bool has_kl_source;
  bool reads_padding;
  IntervalTerms clamp;  // of the log ratio
  IntervalTerms kl_clamp;
  // Bounds of the spec, in float32.
  float ratio_low, ratio_high;
  float ratio_cap;
  float dual_clip;
  // bound(1), the weight of padding, and Vespo::log_weight() of it.
  float padding_weight;
  double padding_log_weight;
};

// Whole-batch inputs of a loss's walk.
struct LossContext {
  // scale / count of both reductions.
  double factor;
  double kl_factor;
  // The divisor of the weights, 1 without normalization.
  double normalizer;
  double advantage_mean;
  double log_prob_mean;
  // [num_sequences] factor_i where tokens need it before their row was walked:
  // groups, given divisors, scaled advantages. Null: the reduction's own
  // formula.
  const double* row_factors;
  // [num_positions] 1 = selected. Null: none.
  const uint8_t* selected;
  // [num_positions] if not null, the walk writes each token's selection_key()
  // here and nothing else.
  float* selection_keys;
};

constexpr LossContext kNoLossContext = {0.0, 0.0,     1.0,     0.0,
                                        0.0, nullptr, nullptr, nullptr};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PLAN_LOSS_PLAN_H_
