// Sums of a batch's policy loss; a part of BatchSums. PODs. m = response_mask,
// keep = the keep mask, other names as in loss_spec.h.
#ifndef COUNTERWEIGHT_KERNELS_LOSS_SUMS_H_
#define COUNTERWEIGHT_KERNELS_LOSS_SUMS_H_

#include <cstdint>
#include <limits>

namespace counterweight::kernels {

struct Extrema {
  double min;
  double max;
};

// The extrema of no values.
inline constexpr Extrema kNoExtrema{std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity()};

// All 0 (extrema +-infinity) if the spec has no loss.
struct LossSums {
  double total;       // policy + coefficient * kl_penalty
  double policy;      // sum_i factor_i sum_t keep w V
  double kl_penalty;  // sum_i kl_factor_i sum_t k, without the coefficient
  // The count that factors were divided by; 0: the policy or its KL penalty had
  // nothing to average.
  double count;

  // Over the KL's token set: sum of k and number of tokens.
  double kl;
  int64_t kl_tokens;

  // l of metrics_source, not clamped.
  double log_ratio;       // sum over m
  double log_ratio_kept;  // sum over keep

  // r of the surrogate over m, after its clamp; 1 for kReinforce and
  // kCrossEntropy, which have none; the row's exp(mean) for kGeoMean.
  double ratio;
  Extrema ratio_range;

  // Tokens. "clipped": PPO: the clipped branch is the larger one; CISPO: r
  // outside [low, high]; ROLLOUT_IS: not strictly inside; DPPO: outside, A !=
  // 0; CLIP_COV: selected; GEO_MEAN: l beyond the end that A pulls it to.
  int64_t clipped;  // of m
  // By sign: r > high and A > 0; r < low and A < 0; r after ratio_cap. DPPO:
  // the clipped ones by sign of A. GEO_MEAN: l outside its interval on either
  // side, A > 0 and A < 0.
  int64_t high, low;  // of m
  // Tokens of keep. PPO: capped by dual_clip. DPPO: r > ratio_cap, not clipped.
  int64_t capped_kept;

  // The gradient in the result, KL penalty included.
  double gradient_squared;  // sum of squares
  // Sums over m of |factor_i w dV/dlp| without clipping: all of it, the part
  // that clipping removed, the part on tokens that rules dropped.
  double slope, slope_clipped, slope_rejected;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_LOSS_SUMS_H_
