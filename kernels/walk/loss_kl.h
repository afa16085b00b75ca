// The KL penalty of a tile: LossTiles::kl_value and its slopes.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_KL_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_KL_H_

#include "kernels/walk/loss_ratios.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossKl {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;

  // k of d = current - ref (its tile holds -d), or of another source's d.
  COUNTERWEIGHT_HD static void run(const Plan& plan, const State& s,
                                   LossTiles<Lanes>& t) {
    const LossPlan& loss = plan.loss;
    constexpr int kRef = static_cast<int>(RatioSource::kRefCurrent);
    const KlSpec& kl = loss.spec.kl;
    const IntervalTerms c = loss.kl_clamp;
    const TileOf<Lanes>& over =
        Lanes::choose(kl.over == TokenSet::kKept, s.kept, s.mask);
    const TileOf<Lanes>& ratios = LossRatios<Lanes>::ratio(loss, s, t);
    const TileOf<Lanes>& ratio_slopes = LossRatios<Lanes>::slope(loss, s, t);
    const bool is_own = needs<Lanes>(plan, kNeedKlRatio) && kl.has_own_ratio;
    const TileOf<Lanes>& own_ratios =
        s.exp[static_cast<int>(loss.kl_ratio_source)];
    const bool is_of_ref =
        !(needs<Lanes>(plan, kNeedKlRatio) && loss.has_kl_source);
    const TileOf<Lanes>& log_ratios =
        s.log_ratio[is_of_ref ? kRef : static_cast<int>(kl.source)];
    const bool by_row = needs<Lanes>(plan, kNeedRowRatio) && !is_own;
    const bool has_weight =
        may_weigh<Lanes>() && loss.weighs_tokens && kl.has_weight;
    const TileOf<Lanes>& weights = Lanes::choose(has_weight, s.weight, s.mask);
    for_each_group<kWidth>(s.steps, [&](int k,
                                        int g) COUNTERWEIGHT_INLINE_LAMBDA {
      const Vec zero{};
      const Vec l = log_ratios.vec(k, g);
      const Vec raw = is_of_ref ? l : -l;
      const auto high = raw > c.upper;
      const auto low = raw < c.lower;
      const Vec capped = high ? splat(c.upper) : raw;
      const Vec x = low ? splat(c.lower) : capped;
      Vec value = zero;
      Vec slope = zero;
      switch (kl.estimator) {
        case KlEstimator::kNone:
          break;
        case KlEstimator::kK1:
          value = -x;
          slope = splat(1.0f);
          break;
        case KlEstimator::kK2:
          value = 0.5f * (x * x);
          slope = -x;
          break;
        case KlEstimator::kK3: {
          const Vec own = high ? splat(c.k3_upper) : s.k3[kRef].vec(k, g);
          value = low ? splat(c.k3_lower) : own;
          slope = -s.expm1[kRef].vec(k, g);
          break;
        }
        case KlEstimator::kAbs: {
          const Vec one = splat(1.0f);
          const Vec negative_or_zero = x > 0.0f ? -one : zero;
          value = absolute(x);
          slope = x < 0.0f ? one : negative_or_zero;
          break;
        }
      }
      slope = high ? zero : slope;
      slope = low ? zero : slope;
      const Vec most = splat(static_cast<float>(kl.value_clamp));
      const Vec bound = kl.clamps_product ? splat(__builtin_inff()) : most;
      const auto above = value > bound;
      const auto below = value < -bound;
      value = above ? most : value;
      value = below ? -most : value;
      slope = above ? zero : slope;
      slope = below ? zero : slope;
      if (kl.straight_through) slope = -raw;
      if constexpr (Lanes::may(kNeedKlRatio)) {
        if (needs<Lanes>(plan, kNeedKlRatio) && kl.gradient_ratio_cap > 0.0) {
          slope *= least(own_ratios.vec(k, g), splat(loss.kl_ratio_cap));
        }
      }
      Vec shared = zero;
      if (kl.importance_weighted) {
        const Vec r = is_own ? own_ratios.vec(k, g) : ratios.vec(k, g);
        const auto is_held = high | low;
        const Vec held = is_held ? zero : r;
        const Vec own_slope = kl.ratio_always_moves ? r : held;
        const Vec dr = is_own ? own_slope : ratio_slopes.vec(k, g);
        if (by_row) {
          const auto slides = (value != 0.0f) & (dr != 0.0f);
          shared = slides ? value * dr : zero;
        } else {
          // d(k r) = r (k + dk) where r moves with the token, else r dk. Far
          // from the reference the two terms of K3 are huge; their sum is d.
          const auto clamped = high | low | above | below;
          const Vec sum = value + slope;
          const Vec cancelled = clamped ? sum : -raw;
          const Vec both = kl.estimator == KlEstimator::kK3 ? cancelled : sum;
          slope = dr == r ? both : slope;
        }
        slope = slope != 0.0f ? slope * r : zero;
        value = value != 0.0f ? value * r : zero;
        if (kl.clamps_product) {
          const auto beyond = value > most;
          const auto short_of = value < -most;
          const auto stopped = beyond | short_of;
          value = beyond ? most : value;
          value = short_of ? -most : value;
          slope = stopped ? zero : slope;
          shared = stopped ? zero : shared;
        }
      }
      if (has_weight) {
        const Vec w = weights.vec(k, g);
        const auto weighs = w != 0.0f;
        value = weighs ? value * w : zero;
        slope = weighs ? slope * w : zero;
        shared = weighs ? shared * w : zero;
      }
      const auto counts = over.vec(k, g) != 0.0f;
      t.kl_value.set(k, g, counts ? value : zero);
      t.kl_slope.set(k, g, counts ? slope : zero);
      t.kl_sequence_slope.set(k, g, counts ? shared : zero);
    });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_KL_H_
