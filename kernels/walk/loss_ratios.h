// The ratio r of a tile's tokens as a loss sees it.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_RATIOS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_RATIOS_H_

#include "kernels/walk/accumulators.h"
#include "kernels/walk/exact_log_ratio.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossRatios {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Values = TileOf<Lanes>;

  // Begins the tile of a loss: ratio(), slope() and t.excess may be read from
  // here on.
  COUNTERWEIGHT_HD static void set(const LossPlan& loss, const LossRow& row,
                                   const State& s, LossTiles<Lanes>& t) {
    t.ratio_is_exp = false;
    constexpr Needs kOthers = kNeedSurrogates | kNeedReinforce | kNeedRowLoss;
    if (Lanes::may(kOthers) && loss.ratio_of_row) {
      set_row(loss, row, s, t);
      return;
    }
    const int source = static_cast<int>(source_of(loss));
    const IntervalTerms& c = loss.clamp;
    if constexpr (!Lanes::kReadsAhead) {
      t.ratio_is_exp = !may_clamp(s, source_of(loss), c);
    }
    if (!t.ratio_is_exp)
      set_clamped(c, s.log_ratio[source], s.exp[source], s, t);
    if (!Lanes::may(kNeedSurrogates) || !loss.reads_excess) return;
    const Values& expm1 = s.expm1[source];
    const Vec least_excess = splat(c.expm1_lower);
    const Vec most_excess = splat(c.expm1_upper);
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          t.excess.set(k, g, clip(expm1.vec(k, g), least_excess, most_excess));
        });
  }

  // r.
  COUNTERWEIGHT_HD static const Values& ratio(const LossPlan& loss,
                                              const State& s,
                                              const LossTiles<Lanes>& t) {
    return exp_or(t.ratio, loss, s, t);
  }
  // dr / dl; LossLevel::kSequence: dr / dS.
  COUNTERWEIGHT_HD static const Values& slope(const LossPlan& loss,
                                              const State& s,
                                              const LossTiles<Lanes>& t) {
    return exp_or(t.ratio_slope, loss, s, t);
  }

 private:
  COUNTERWEIGHT_HD static RatioSource source_of(const LossPlan& loss) {
    return Lanes::source(SourceUse::kLoss, loss.spec.source);
  }

  COUNTERWEIGHT_HD static const Values& exp_or(const Values& own,
                                               const LossPlan& loss,
                                               const State& s,
                                               const LossTiles<Lanes>& t) {
    if constexpr (Lanes::kReadsAhead) {
      return own;
    } else {
      return t.ratio_is_exp ? s.exp[static_cast<int>(source_of(loss))] : own;
    }
  }

  // False if no log ratio of the tile is near an end of the clamp. Ends are
  // approached as far as the exponential's rounding cannot matter.
  COUNTERWEIGHT_HD static bool may_clamp(const State& s, RatioSource source,
                                         const IntervalTerms& c) {
    constexpr double kNear = 0.99;
    constexpr float kLeastEnd = 1e-3f;
    const float end = c.upper < -c.lower ? c.upper : -c.lower;
    return !(end > kLeastEnd) || reaches(s, source, kNear * end);
  }

  COUNTERWEIGHT_HD static void set_row(const LossPlan& loss, const LossRow& row,
                                       const State& s, LossTiles<Lanes>& t) {
    const bool none = !loss.has_ratio;
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          t.ratio.set(k, g, splat(row.ratio));
          t.excess.set(k, g, splat(row.excess));
          t.ratio_slope.set(k, g, splat(none ? 0.0f : row.slope));
        });
  }

  COUNTERWEIGHT_HD static void set_clamped(const IntervalTerms& c,
                                           const Values& log_ratio,
                                           const Values& exp, const State& s,
                                           LossTiles<Lanes>& t) {
    const Vec lower = splat(c.lower);
    const Vec upper = splat(c.upper);
    const Vec lowest = splat(c.exp_lower);
    const Vec highest = splat(c.exp_upper);
    for_each_group<kWidth>(s.steps,
                           [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                             const Vec l = log_ratio.vec(k, g);
                             const auto outside = (l > upper) | (l < lower);
                             const Vec r = clip(exp.vec(k, g), lowest, highest);
                             t.ratio.set(k, g, r);
                             t.ratio_slope.set(k, g, outside ? Vec{} : r);
                           });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_RATIOS_H_
