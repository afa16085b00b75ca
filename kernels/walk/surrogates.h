// Policy surrogates: value and slopes of one register of tokens. The formulas
// are those of the papers named; where a system's form differs from its paper,
// the system's is meant. A is the advantage, lp the current log-prob, r the
// ratio, [low, high] the plan's interval.
#ifndef COUNTERWEIGHT_KERNELS_WALK_SURROGATES_H_
#define COUNTERWEIGHT_KERNELS_WALK_SURROGATES_H_

#include "kernels/walk/loss_plan.h"
#include "kernels/walk/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// All 0 unless set. Flags are 0 or 1, as in LossSums.
struct SurrogateVec {
  Vec value;
  Vec slope;       // dV / dlp with r held fixed
  Vec full_slope;  // without clipping
  // dV / dr without clipping, and where clipping leaves 0 of it.
  Vec full_ratio_slope;
  Vec stopped;
  Vec clipped;
  Vec high;
  Vec low;
  Vec capped;
  Vec beyond_zero;
};

COUNTERWEIGHT_HD Vec clip(const LossPlan& loss, Vec r) {
  return clip(r, splat(loss.ratio_low), splat(loss.ratio_high));
}

// -A x; 0 where A is, whatever x: a token without advantage costs nothing, also
// where its ratio overflows.
COUNTERWEIGHT_HD Vec cost(Vec a, Vec x) { return a != 0.0f ? -a * x : Vec{}; }

// PPO (Schulman et al. 2017, arXiv:1707.06347) with dual clip (Ye et al. 2020,
// arXiv:1912.09729) and TRL's two-sided delta (Prime Intellect 2025,
// arXiv:2505.07291). At r exactly on a bound the slope is the unclipped one.
COUNTERWEIGHT_HD SurrogateVec ppo_clip(const LossPlan& loss, Vec a, Vec r) {
  const Vec zero{};
  const Vec one = splat(1.0f);
  // Without advantage nothing counts, also where the ratio overflows.
  const Vec ratio = a != 0.0f ? r : one;
  const Vec cap = splat(loss.ratio_cap);
  const auto over = ratio > cap;
  const Vec c1 = over ? cap : ratio;
  const Vec unclipped = -a * c1;
  const Vec clipped = -a * clip(loss, ratio);
  const auto takes_clipped = clipped > unclipped;
  const Vec value = takes_clipped ? clipped : unclipped;
  const Vec ceiling = -a * loss.dual_clip;
  const auto negative = a < 0.0f;
  const auto capped = negative & (value > ceiling);
  // A cap below `high` makes clip(r) the larger branch where it is r itself.
  const auto outside = (ratio > loss.ratio_high) | (ratio < loss.ratio_low);
  const auto stopped =
      capped | (takes_clipped & outside) | (over & !takes_clipped);
  SurrogateVec out{};
  out.value = capped ? ceiling : value;
  out.full_ratio_slope = -a;
  out.stopped = stopped ? one : zero;
  out.clipped = takes_clipped ? one : zero;
  out.high = ((a > 0.0f) & (c1 > loss.ratio_high)) ? one : zero;
  out.low = (negative & (c1 < loss.ratio_low)) ? one : zero;
  out.capped = capped ? one : zero;
  return out;
}

// CISPO (MiniMax-M1 2025, arXiv:2506.13585): -A clip(r) lp, clip(r) detached.
COUNTERWEIGHT_HD SurrogateVec cispo(const LossPlan& loss, Vec a, Vec lp,
                                    Vec r) {
  const Vec zero{};
  const Vec one = splat(1.0f);
  const Vec scaled = cost(a, clip(loss, r));
  SurrogateVec out{};
  out.value = scaled * lp;
  out.slope = scaled;
  out.full_slope = cost(a, r);
  const auto above = r > loss.ratio_high;
  const auto below = r < loss.ratio_low;
  const Vec low_or_zero = below ? one : zero;
  out.clipped = above ? one : low_or_zero;
  const Vec positive = a > 0.0f ? one : zero;
  const Vec negative = a < 0.0f ? one : zero;
  out.high = above ? positive : zero;
  out.low = below ? negative : zero;
  return out;
}

// tau (r - 1) of SAPO's gate; excess = r - 1.
COUNTERWEIGHT_HD Vec sapo_argument(const LossPlan& loss, Vec a, Vec excess) {
  const Vec positive = splat(static_cast<float>(loss.spec.tau_positive));
  const Vec negative = splat(static_cast<float>(loss.spec.tau_negative));
  return (a > 0.0f ? positive : negative) * excess;
}

// SAPO (Gao et al. 2025, arXiv:2511.20347): -A sigmoid(tau (r - 1)) 4 / tau.
// `decay` = exp(-abs(tau (r - 1))).
COUNTERWEIGHT_HD SurrogateVec sapo(const LossPlan& loss, Vec a, Vec excess,
                                   Vec decay) {
  const Vec positive = splat(static_cast<float>(4.0 / loss.spec.tau_positive));
  const Vec negative = splat(static_cast<float>(4.0 / loss.spec.tau_negative));
  const Vec scale = a > 0.0f ? positive : negative;
  const Vec larger = 1.0f / (1.0f + decay);
  const Vec smaller = decay / (1.0f + decay);
  const Vec gate = excess < 0.0f ? smaller : larger;
  SurrogateVec out{};
  out.value = -a * (gate * scale);
  out.full_ratio_slope = -a * (4.0f * (larger * smaller));
  return out;
}

// REINFORCE (Williams 1992) and GPG (Chu et al. 2025, arXiv:2504.02546).
COUNTERWEIGHT_HD SurrogateVec reinforce(Vec a, Vec lp) {
  SurrogateVec out{};
  out.value = -a * lp;
  out.slope = -a;
  out.full_slope = -a;
  return out;
}

COUNTERWEIGHT_HD SurrogateVec cross_entropy(Vec lp) {
  SurrogateVec out{};
  out.value = -lp;
  out.slope = splat(-1.0f);
  out.full_slope = out.slope;
  return out;
}

COUNTERWEIGHT_HD SurrogateVec importance_sampling(Vec a, Vec r) {
  SurrogateVec out{};
  out.value = cost(a, r);
  out.full_ratio_slope = -a;
  return out;
}

// DRO (Richemond et al. 2024, arXiv:2405.19107): -(A lp - beta / 2 l^2).
COUNTERWEIGHT_HD SurrogateVec dro(const LossPlan& loss, Vec a, Vec lp, Vec l) {
  const float beta = static_cast<float>(loss.spec.beta);
  SurrogateVec out{};
  out.value = beta * (0.5f * (l * l)) - a * lp;
  out.slope = beta * l - a;
  out.full_slope = out.slope;
  return out;
}

// DPPO (Qi et al. 2026, arXiv:2602.04879): no gradient where the divergence of
// the two probabilities is `outside`: 1 above clip_high, -1 beyond clip_low.
COUNTERWEIGHT_HD SurrogateVec dppo(const LossPlan& loss, Vec a, Vec lp, Vec r,
                                   Vec outside) {
  const Vec zero{};
  const Vec one = splat(1.0f);
  const Vec cap = splat(loss.ratio_cap);
  const Vec high = outside > 0.0f ? one : zero;
  const Vec low = outside < 0.0f ? one : zero;
  SurrogateVec out{};
  out.high = a > 0.0f ? high : zero;
  out.low = a < 0.0f ? low : zero;
  out.beyond_zero = a == 0.0f ? low : zero;
  out.clipped = out.high + out.low;
  const Vec valid = 1.0f - out.clipped;
  const auto over = r > cap;
  out.capped = over ? valid - out.beyond_zero : zero;
  const Vec scaled = cost(a, over ? cap : r);
  if (loss.spec.log_prob_form) {
    out.slope = out.clipped != 0.0f ? zero : scaled;
    out.value = out.slope * lp;
    out.full_slope = cost(a, r);
  } else {
    out.value = out.clipped != 0.0f ? zero : scaled;
    out.full_ratio_slope = -a;
    out.stopped = out.clipped;
  }
  return out;
}

// SkyRL's "rollout_is": -A r lp inside the open interval, r detached.
COUNTERWEIGHT_HD SurrogateVec rollout_is(const LossPlan& loss, Vec a, Vec lp,
                                         Vec r) {
  const Vec zero{};
  const Vec one = splat(1.0f);
  const Vec above = r < loss.ratio_high ? zero : one;
  const Vec below = r > loss.ratio_low ? zero : one;
  SurrogateVec out{};
  out.clipped = above != 0.0f ? one : below;
  const Vec scaled = cost(a, r);
  out.slope = out.clipped != 0.0f ? zero : scaled;
  out.value = out.slope * lp;
  out.full_slope = scaled;
  const Vec positive = a > 0.0f ? one : zero;
  const Vec negative = a < 0.0f ? one : zero;
  out.high = r > loss.ratio_high ? positive : zero;
  out.low = r < loss.ratio_low ? negative : zero;
  return out;
}

// KL-Cov (Cui et al. 2025, arXiv:2505.22617).
COUNTERWEIGHT_HD SurrogateVec kl_cov(const LossPlan& loss, Vec a, Vec l, Vec r,
                                     Vec selected) {
  const Vec zero{};
  const Vec weight =
      selected * static_cast<float>(loss.spec.covariance_kl_weight);
  const Vec below_or_zero = l < 0.0f ? -weight : zero;
  SurrogateVec out{};
  out.value = weight * absolute(l) + cost(a, r);
  out.slope = l > 0.0f ? weight : below_or_zero;
  out.full_ratio_slope = -a;
  out.full_slope = out.slope;
  return out;
}

// Clip-Cov (the same): PPO whose selected tokens fall away.
COUNTERWEIGHT_HD SurrogateVec clip_cov(const LossPlan& loss, Vec a, Vec r,
                                       Vec selected) {
  const Vec zero{};
  SurrogateVec out = ppo_clip(loss, a, r);
  out.value = selected != 0.0f ? zero : out.value;
  out.stopped = selected != 0.0f ? splat(1.0f) : out.stopped;
  out.clipped = selected;
  return out;
}

// GMPO (Zhao et al. 2025, arXiv:2507.20673): V is the row's; its slope reaches
// the tokens whose log ratio is not clipped against their advantage. Half of it
// where the log ratio is exactly a bound, as in verl's.
COUNTERWEIGHT_HD SurrogateVec geo_mean(const LossPlan& loss, Vec a, Vec l,
                                       float value) {
  const Vec zero{};
  const Vec one = splat(1.0f);
  const float lowest = static_cast<float>(-loss.spec.clip_low);
  const float highest = static_cast<float>(loss.spec.clip_high);
  const Vec above = l > highest ? one : zero;
  const Vec below = l < lowest ? one : zero;
  const Vec outside = above + below;
  SurrogateVec out{};
  out.value = splat(value);
  const Vec rising = above != 0.0f ? zero : out.value;
  const Vec falling = below != 0.0f ? zero : out.value;
  const Vec falling_or_zero = a < 0.0f ? falling : zero;
  const Vec whole = a > 0.0f ? rising : falling_or_zero;
  const Vec halved = l == highest ? 0.5f * whole : whole;
  out.slope = l == lowest ? 0.5f * whole : halved;
  out.full_slope = a != 0.0f ? out.value : zero;
  out.high = a > 0.0f ? outside : zero;
  out.low = a < 0.0f ? outside : zero;
  const Vec below_or_zero = a < 0.0f ? below : zero;
  out.clipped = a > 0.0f ? above : below_or_zero;
  return out;
}

// VESPO (Shen et al. 2026, arXiv:2602.10693): -A phi lp, phi of the row.
COUNTERWEIGHT_HD SurrogateVec vespo(Vec a, Vec lp, float phi_positive,
                                    float phi_negative) {
  const Vec positive = splat(phi_positive);
  const Vec negative = splat(phi_negative);
  const Vec scaled = -a * (a < 0.0f ? negative : positive);
  SurrogateVec out{};
  out.value = scaled * lp;
  out.slope = scaled;
  out.full_slope = scaled;
  return out;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SURROGATES_H_
