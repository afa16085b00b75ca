// DPPO (Qi et al. 2026, arXiv:2602.04879): no gradient where a divergence of
// the two probabilities p = exp(current) and q = exp(denominator) is beyond
// clip_high upwards or clip_low downwards. Words as in clipped.h.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_DIVERGENCE_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_DIVERGENCE_H_

#include "kernels/math/exp.h"
#include "kernels/surrogate_info.h"
#include "kernels/surrogates/surrogate.h"
#include "kernels/tile/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Of::divergence(lp, lq) is the divergence.
template <class Of>
struct Dppo {
  // Leaves 1 where the divergence is not within clip_high, -1 not within
  // clip_low.
  template <class Lanes>
  COUNTERWEIGHT_HD static void prepare(const LossPlan& loss,
                                       const TileState<Lanes>& s,
                                       LossTiles<Lanes>& t) {
    const RatioSource source =
        Lanes::source(SourceUse::kLoss, loss.spec.source);
    const TileOf<Lanes>& num = s.input[numerator(source)];
    const TileOf<Lanes>& den = s.input[denominator(source)];
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < Lanes::kWidth; ++i) {
        const double lp = static_cast<double>(num.at[k][i]);
        const double lq = static_cast<double>(den.at[k][i]);
        const double divergence = Of::divergence(lp, lq);
        const bool high =
            lp > lq && is_beyond(loss, divergence, loss.spec.clip_high);
        const bool low =
            lp < lq && is_beyond(loss, divergence, loss.spec.clip_low);
        const float low_or_zero = low ? -1.0f : 0.0f;
        t.prepared.at[k][i] = high ? 1.0f : low_or_zero;
      }
    }
  }

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec zero{};
    const Vec one = splat(1.0f);
    const Vec cap = splat(loss.ratio_cap);
    const Vec high = x.prepared > 0.0f ? one : zero;
    const Vec low = x.prepared < 0.0f ? one : zero;
    SurrogateVec out{};
    out.high = x.a > 0.0f ? high : zero;
    out.low = x.a < 0.0f ? low : zero;
    out.beyond_zero = x.a == 0.0f ? low : zero;
    out.clipped = out.high + out.low;
    const Vec valid = 1.0f - out.clipped;
    const auto over = x.r > cap;
    out.capped = over ? valid - out.beyond_zero : zero;
    const Vec scaled = cost(x.a, over ? cap : x.r);
    if (loss.spec.log_prob_form) {
      out.slope = out.clipped != 0.0f ? zero : scaled;
      out.value = out.slope * x.lp;
      out.full_slope = cost(x.a, x.r);
    } else {
      out.value = out.clipped != 0.0f ? zero : scaled;
      out.full_ratio_slope = -x.a;
      out.stopped = out.clipped;
    }
    return out;
  }

 private:
  COUNTERWEIGHT_HD static bool is_beyond(const LossPlan& loss,
                                         double divergence, double bound) {
    return loss.spec.keeps_undefined_divergence ? divergence > bound
                                                : !(divergence <= bound);
  }
};

inline constexpr uint32_t kDppoTraits = kTraitRatio | kTraitDivergence;
inline constexpr uint32_t kDppoParameters =
    Bits(LossParameter::kClipLow, LossParameter::kClipHigh,
         LossParameter::kRatioCap, LossParameter::kLogRatioClamp);

struct DppoTv : Dppo<DppoTv> {
  static constexpr Surrogate kSurrogate = Surrogate::kDppoTv;
  static constexpr SurrogateInfo kInfo = {"dppo_tv", kDppoTraits,
                                          kDppoParameters};

  // |p - q|, accurate where they are close.
  COUNTERWEIGHT_HD static double divergence(double lp, double lq) {
    const double larger = lp > lq ? lp : lq;
    const double l = lp - lq;
    return exp64(larger) * -expm1_64(l < 0.0 ? l : -l);
  }
};

struct DppoKl : Dppo<DppoKl> {
  static constexpr Surrogate kSurrogate = Surrogate::kDppoKl;
  static constexpr SurrogateInfo kInfo = {"dppo_kl", kDppoTraits,
                                          kDppoParameters};

  // q (lq - lp) + (1 - q) log((1 - q + 1e-8) / (1 - p + 1e-8)). NaN where one
  // of the two log-probs is above 0.
  COUNTERWEIGHT_HD static double divergence(double lp, double lq) {
    constexpr double kFloor = 1e-8;
    const double q = exp64(lq);
    const double rest_p = rest(lp);
    const double rest_q = rest(lq);
    return q * (lq - lp) +
           rest_q * log64((rest_q + kFloor) / (rest_p + kFloor));
  }

 private:
  // 1 - exp(log_prob). Up to 2^-24 above 0 the exponential is 1 in float32, in
  // which the other systems compute it, and so it is here.
  COUNTERWEIGHT_HD static double rest(double log_prob) {
    const bool is_one = log_prob > 0.0 && log_prob <= 0x1p-24;
    return is_one ? 0.0 : -expm1_64(log_prob);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_DIVERGENCE_H_
