// Surrogates that clip the ratio itself. A is the advantage, lp the current
// log-prob, r the ratio, [low, high] the plan's interval. Formulas are those of
// the papers named; where a system's form differs from its paper, the system's
// is meant.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_CLIPPED_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_CLIPPED_H_

#include "kernels/surrogate_info.h"
#include "kernels/surrogates/surrogate.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// PPO (Schulman et al. 2017, arXiv:1707.06347) with dual clip (Ye et al. 2020,
// arXiv:1912.09729) and TRL's two-sided delta (Prime Intellect 2025,
// arXiv:2505.07291). At r exactly on a bound the slope is the unclipped one.
struct PpoClip {
  static constexpr Surrogate kSurrogate = Surrogate::kPpoClip;
  static constexpr SurrogateInfo kInfo = {
      "ppo_clip",
      kTraitRatio | kTraitRatioSlope | kTraitLevels | kTraitPadding |
          kTraitCountsPadding | kTraitCommon,
      Bits(LossParameter::kClipLow, LossParameter::kClipHigh,
           LossParameter::kDualClip, LossParameter::kRatioCap,
           LossParameter::kLogRatioClamp)};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    // Without advantage nothing counts, also where the ratio overflows.
    return value_at(loss, x.a, x.a != 0.0f ? x.r : splat(1.0f));
  }

  // The same of finite ratios; where A is 0, of any.
  COUNTERWEIGHT_HD static SurrogateVec value_at(const LossPlan& loss, Vec a,
                                                Vec ratio) {
    const Vec zero{};
    const Vec one = splat(1.0f);
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
};

// CISPO (MiniMax-M1 2025, arXiv:2506.13585): -A clip(r) lp, clip(r) detached.
// Its upper end may lie below 1: TRL's default cap is 0.2.
struct Cispo {
  static constexpr Surrogate kSurrogate = Surrogate::kCispo;
  static constexpr SurrogateInfo kInfo = {
      "cispo", kTraitRatio | kTraitLevels | kTraitLowCap | kTraitPadding,
      Bits(LossParameter::kClipLow, LossParameter::kClipHigh,
           LossParameter::kLogRatioClamp)};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec zero{};
    const Vec one = splat(1.0f);
    const Vec scaled = cost(x.a, clip(loss, x.r));
    SurrogateVec out{};
    out.value = scaled * x.lp;
    out.slope = scaled;
    out.full_slope = cost(x.a, x.r);
    const auto above = x.r > loss.ratio_high;
    const auto below = x.r < loss.ratio_low;
    const Vec low_or_zero = below ? one : zero;
    out.clipped = above ? one : low_or_zero;
    const Vec positive = x.a > 0.0f ? one : zero;
    const Vec negative = x.a < 0.0f ? one : zero;
    out.high = above ? positive : zero;
    out.low = below ? negative : zero;
    return out;
  }
};

// SkyRL's "rollout_is": -A r lp inside the open interval, r detached.
struct RolloutIs {
  static constexpr Surrogate kSurrogate = Surrogate::kRolloutIs;
  static constexpr SurrogateInfo kInfo = {
      "rollout_is", kTraitRatio,
      Bits(LossParameter::kClipLow, LossParameter::kClipHigh,
           LossParameter::kLogRatioClamp)};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec zero{};
    const Vec one = splat(1.0f);
    const Vec above = x.r < loss.ratio_high ? zero : one;
    const Vec below = x.r > loss.ratio_low ? zero : one;
    SurrogateVec out{};
    out.clipped = above != 0.0f ? one : below;
    const Vec scaled = cost(x.a, x.r);
    out.slope = out.clipped != 0.0f ? zero : scaled;
    out.value = out.slope * x.lp;
    out.full_slope = scaled;
    const Vec positive = x.a > 0.0f ? one : zero;
    const Vec negative = x.a < 0.0f ? one : zero;
    out.high = x.r > loss.ratio_high ? positive : zero;
    out.low = x.r < loss.ratio_low ? negative : zero;
    return out;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_CLIPPED_H_
