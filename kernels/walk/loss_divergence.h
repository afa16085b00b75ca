// DPPO's test of two probabilities p = exp(current) and q = exp(denominator):
// into s.selected 1 where it is beyond clip_high upwards, -1 beyond clip_low
// downwards, else 0.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_DIVERGENCE_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_DIVERGENCE_H_

#include "kernels/math/exp.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct Divergence {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;

  COUNTERWEIGHT_HD static void run(const LossPlan& loss, State& s) {
    const bool total_variation = loss.spec.surrogate == Surrogate::kDppoTv;
    const RatioSource source =
        Lanes::source(SourceUse::kLoss, loss.spec.source);
    const Tile<kWidth>& num = s.input[numerator(source)];
    const Tile<kWidth>& den = s.input[denominator(source)];
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        const double lp = static_cast<double>(num.at[k][i]);
        const double lq = static_cast<double>(den.at[k][i]);
        const double divergence =
            total_variation ? difference(lp, lq) : binary_kl(lp, lq);
        const bool rises = lp > lq;
        const bool falls = lp < lq;
        const bool high = rises && divergence > loss.spec.clip_high;
        const bool low = falls && divergence > loss.spec.clip_low;
        const float low_or_zero = low ? -1.0f : 0.0f;
        s.selected.at[k][i] = high ? 1.0f : low_or_zero;
      }
    }
  }

 private:
  // |p - q|, accurate where they are close.
  COUNTERWEIGHT_HD static double difference(double lp, double lq) {
    const double larger = lp > lq ? lp : lq;
    const double l = lp - lq;
    return exp64(larger) * -expm1_64(l < 0.0 ? l : -l);
  }

  // q (lq - lp) + (1 - q) log((1 - q + 1e-8) / (1 - p + 1e-8)).
  COUNTERWEIGHT_HD static double binary_kl(double lp, double lq) {
    constexpr double kFloor = 1e-8;
    const double q = exp64(lq);
    const double rest_p = -expm1_64(lp);
    const double rest_q = -expm1_64(lq);
    return q * (lq - lp) +
           rest_q * log64((rest_q + kFloor) / (rest_p + kFloor));
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_DIVERGENCE_H_
