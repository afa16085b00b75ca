// Phase 6 of a tile, with the outputs: the loss of each token, its gradient,
// and their sums.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_PHASE_H_

#include "kernels/surrogates/list.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/loss_kl.h"
#include "kernels/walk/loss_padding.h"
#include "kernels/walk/loss_ratios.h"
#include "kernels/walk/loss_sums_phase.h"
#include "kernels/walk/selection_keys.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// x86 and CUDA make NaNs of different bits.
constexpr float kCanonicalNaN = __builtin_nanf("");

template <class Lanes>
struct LossPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  static constexpr int kCurrent = static_cast<int>(InputRole::kCurrent);
  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

  // has_drift: the drift phase has added up the tile. REQUIRES: s.weight holds
  // final weights if loss.weighs_tokens.
  COUNTERWEIGHT_HD static void run(const Plan& plan, const Batch& batch,
                                   const LossContext& context,
                                   const RowState& row, bool has_drift,
                                   bool loss_only, bool leaves_slopes, State& s,
                                   Acc& acc, float* gradient) {
    const LossPlan& loss = plan.loss;
    LossTiles<Lanes>& t = s.tiles.template begin<LossTiles<Lanes>>();
    LossRatios<Lanes>::set(loss, row.loss, s, t);
    if (Lanes::may(kNeedSelection) && context.selection_keys != nullptr) {
      SelectionKeys<Lanes>::run(loss, context, s, t);
      return;
    }
    if (Lanes::may(kNeedSelection) && context.selected != nullptr) {
      Lanes::load_mask(context.selected, s.position, s.count, t.prepared);
    }
    const bool measured = measures<Lanes>(plan) && !loss_only;
    apply_surrogate(plan, row.loss, measured, s, t);
    if (needs<Lanes>(plan, kNeedKl)) LossKl<Lanes>::run(plan, s, t);
    LossSumsPhase<Lanes>::run(plan, has_drift, measured, s, acc);
    if (needs<Lanes>(plan, kNeedPadding)) {
      LossPadding<Lanes>::run(plan, batch, row, s, acc);
    }
    if (loss_only) return;
    if (!Lanes::kReadsAhead && leaves_slopes) {
      Lanes::store(t.slope, s, gradient);
      return;
    }
    put_gradient(plan, measured, row.loss, s, t, acc, gradient);
  }

  // Reads slopes from `gradient` and writes the gradient there; s has the mask.
  COUNTERWEIGHT_HD static void finish_slopes(const Plan& plan,
                                             const RowState& row, State& s,
                                             Acc& acc, float* gradient) {
    LossTiles<Lanes>& t = s.tiles.template begin<LossTiles<Lanes>>();
    Lanes::load({gradient, DType::kF32}, s.position, s.count, s.mask, t.slope);
    put_gradient(plan, measures<Lanes>(plan), row.loss, s, t, acc, gradient);
  }

 private:
  COUNTERWEIGHT_HD static void put_gradient(const Plan& plan, bool measured,
                                            const LossRow& row, const State& s,
                                            LossTiles<Lanes>& t, Acc& acc,
                                            float* gradient) {
    make_gradient(plan, row, s, t);
    if (measured) {
      acc.add_exact(kColumnLoss + kLossGradientSquared, s.steps,
                    [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                      const WideVec g = t.slope.wide(k, h);
                      return g * g;
                    });
    }
    Lanes::store(t.slope, s, gradient);
  }

  COUNTERWEIGHT_HD static RatioSource source_of(const LossPlan& loss) {
    return Lanes::source(SourceUse::kLoss, loss.spec.source);
  }

  COUNTERWEIGHT_HD static void apply_surrogate(const Plan& plan,
                                               const LossRow& row,
                                               bool measured, const State& s,
                                               LossTiles<Lanes>& t) {
    const LossPlan& loss = plan.loss;
    const bool by_row = needs<Lanes>(plan, kNeedRowRatio);
    const TileOf<Lanes>& log_ratios =
        s.log_ratio[static_cast<int>(source_of(loss))];
    // A token that counts weighs 1 where there are no weights.
    const TileOf<Lanes>& weights = Lanes::choose(
        may_weigh<Lanes>() && loss.weighs_tokens, s.weight, s.mask);
    const TileOf<Lanes>& counted =
        Lanes::choose(needs<Lanes>(plan, kNeedDroppedLoss), s.mask, s.kept);
    const TileOf<Lanes>& ratios = LossRatios<Lanes>::ratio(loss, s, t);
    const TileOf<Lanes>& ratio_slopes = LossRatios<Lanes>::slope(loss, s, t);
    with_surrogate<SurrogateOfWalk<Lanes>>(
        loss.spec.surrogate, [&](auto surrogate) COUNTERWEIGHT_INLINE_LAMBDA {
          if constexpr (requires { surrogate.prepare(loss, s, t); }) {
            surrogate.prepare(loss, s, t);
          }
          for_each_group<kWidth>(
              s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                const SurrogateInput x = {s.input[kAdvantages].vec(k, g),
                                          s.input[kCurrent].vec(k, g),
                                          log_ratios.vec(k, g),
                                          ratios.vec(k, g),
                                          t.excess.vec(k, g),
                                          t.prepared.vec(k, g),
                                          {row.value[0], row.value[1]}};
                emit(by_row, surrogate.value(loss, x), weights, counted,
                     ratio_slopes.vec(k, g), measured, k, g, s, t);
              });
        });
  }

  // Weights, masks, and the chain from r to the log-prob. by_row: the slope
  // through r is the row's, see LossTiles::sequence_slope. A weight of 0 makes
  // everything 0, a slope of 0 stays 0 under an infinite r.
  COUNTERWEIGHT_HD static void emit(bool by_row, const SurrogateVec& v,
                                    const TileOf<Lanes>& weights,
                                    const TileOf<Lanes>& counted, Vec dr,
                                    bool measured, int k, int g, const State& s,
                                    LossTiles<Lanes>& t) {
    const Vec zero{};
    const Vec w = weights.vec(k, g);
    const RatioSlope through = slope_through_ratio(v, dr);
    const auto weighs = w != 0.0f;
    const auto kept = (counted.vec(k, g) != 0.0f) & weighs;
    Vec own = v.slope;
    if (by_row) {
      t.sequence_slope.set(k, g, kept ? w * through.own : zero);
    } else {
      own = own + through.own;
    }
    t.value.set(k, g, kept ? w * v.value : zero);
    t.slope.set(k, g, kept ? w * own : zero);
    // Only metrics read the others.
    if (!measured) return;
    const Vec full = v.full_slope + through.full;
    const auto seen = (s.mask.vec(k, g) != 0.0f) & weighs;
    t.full_slope.set(k, g, seen ? absolute(w * full) : zero);
    t.clipped.set(k, g, v.clipped);
    t.high.set(k, g, v.high);
    t.low.set(k, g, v.low);
    t.capped.set(k, g, v.capped);
    t.beyond_zero.set(k, g, v.beyond_zero);
  }

  // Writes float32(factor slope + kl slope + handed back) into the slopes'
  // tile, added in this order in float64.
  COUNTERWEIGHT_HD static void make_gradient(const Plan& plan,
                                             const LossRow& row, const State& s,
                                             LossTiles<Lanes>& t) {
    const LossPlan& loss = plan.loss;
    const TileOf<Lanes>& over =
        Lanes::choose(loss.spec.over == TokenSet::kKept, s.kept, s.mask);
    const double factor = row.factor;
    const double kl_factor = loss.spec.kl.coefficient * row.kl_factor;
    const double shared = row.hand_back;
    const bool has_kl = needs<Lanes>(plan, kNeedKl);
    const bool needs_row_gradient = needs<Lanes>(plan, kNeedRowGradient);
    const auto own = [&](int k, int half) COUNTERWEIGHT_INLINE_LAMBDA {
      return factor * t.slope.wide(k, half);
    };
    // The common case has a loop of its own without branches.
    if (!has_kl && !needs_row_gradient) {
      set_gradient(s, t, own);
      return;
    }
    set_gradient(s, t, [&](int k, int half) COUNTERWEIGHT_INLINE_LAMBDA {
      WideVec x = own(k, half);
      if (has_kl) x += kl_factor * t.kl_slope.wide(k, half);
      if (needs_row_gradient) x += shared * over.wide(k, half);
      return x;
    });
  }

  // slope(step, half group) in float64.
  template <class F>
  COUNTERWEIGHT_HD static void set_gradient(const State& s, LossTiles<Lanes>& t,
                                            F slope) {
    constexpr int kHalves = kVecLanes / kWideLanes;
    const Vec nan = splat(kCanonicalNaN);
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec narrow = narrowed([&](int h) COUNTERWEIGHT_INLINE_LAMBDA {
            return slope(k, g * kHalves + h);
          });
          const Vec canonical = narrow == narrow ? narrow : nan;
          t.slope.set(k, g, s.mask.vec(k, g) != 0.0f ? canonical : Vec{});
        });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_PHASE_H_
