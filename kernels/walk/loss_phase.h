// Phase 6 of a tile, with the outputs: the loss of each token, its gradient,
// and what both add up to.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_PHASE_H_

#include "kernels/math/exp.h"
#include "kernels/walk/loss_divergence.h"
#include "kernels/walk/loss_kl.h"
#include "kernels/walk/loss_padding.h"
#include "kernels/walk/loss_sums_phase.h"
#include "kernels/walk/selection_keys.h"
#include "kernels/walk/surrogates.h"
#include "kernels/walk/tile_state.h"

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

  // REQUIRES: s.weight holds final weights if loss.weighs_tokens.
  COUNTERWEIGHT_HD static void run(const Plan& plan, const Batch& batch,
                                   const LossContext& context,
                                   const RowState& row, State& s, Acc& acc,
                                   float* gradient) {
    const LossPlan& loss = plan.loss;
    set_ratios(loss, row.loss, s);
    if (Lanes::may(kFeatureSelection) && context.selected != nullptr) {
      Lanes::load_mask(context.selected, s.position, s.count, s.selected);
    }
    const Surrogate surrogate = surrogate_of(loss);
    if (surrogate == Surrogate::kDppoTv || surrogate == Surrogate::kDppoKl) {
      Divergence<Lanes>::run(loss, s);
    }
    if (Lanes::may(kFeatureSelection) && context.selection_keys != nullptr) {
      SelectionKeys<Lanes>::run(loss, context, s);
      return;
    }
    apply_surrogate(loss, row.loss, s);
    const bool has_kl = Lanes::may(kFeatureKl) && loss.has_kl;
    if (has_kl) LossKl<Lanes>::run(loss, s);
    LossSumsPhase<Lanes>::run(plan, s, acc);
    if (Lanes::may(kFeaturePadding) && loss.reads_padding) {
      LossPadding<Lanes>::run(plan, batch, row, s, acc);
    }
    make_gradient(loss, row.loss, s);
    if (measures<Lanes>(plan)) {
      acc.add_exact(kColumnLoss + kLossGradientSquared, s.steps,
                    [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                      const WideVec g = s.loss_slope.wide(k, h);
                      return g * g;
                    });
    }
    Lanes::store(s.loss_slope, s, gradient);
  }

 private:
  COUNTERWEIGHT_HD static RatioSource source_of(const LossPlan& loss) {
    return Lanes::source(SourceUse::kLoss, loss.spec.source);
  }
  COUNTERWEIGHT_HD static Surrogate surrogate_of(const LossPlan& loss) {
    const Surrogate surrogate = loss.spec.surrogate;
    if (Lanes::may(kFeatureSurrogates)) return surrogate;
    if (Lanes::may(kFeatureReinforce) && !loss.has_ratio) {
      return surrogate == Surrogate::kReinforce ? Surrogate::kReinforce
                                                : Surrogate::kCrossEntropy;
    }
    return Surrogate::kPpoClip;
  }

  // r, r - 1 and dr / dl (kSequence: dr / dS), clamped.
  COUNTERWEIGHT_HD static void set_ratios(const LossPlan& loss,
                                          const LossRow& row, State& s) {
    const bool none = !loss.has_ratio;
    const bool others = Lanes::may(kFeatureSurrogates) ||
                        Lanes::may(kFeatureReinforce) ||
                        Lanes::may(kFeatureRowLoss);
    if (others && (none || loss.spec.level != LossLevel::kToken ||
                   surrogate_of(loss) == Surrogate::kGeoMean)) {
      for_each_group<kWidth>(
          s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            s.ratio.set(k, g, splat(row.ratio));
            s.excess.set(k, g, splat(row.excess));
            s.ratio_slope.set(k, g, splat(none ? 0.0f : row.slope));
          });
      return;
    }
    const int source = static_cast<int>(source_of(loss));
    const TileOf<Lanes>& log_ratio = s.log_ratio[source];
    const TileOf<Lanes>& exp = s.exp[source];
    const TileOf<Lanes>& expm1 = s.expm1[source];
    const IntervalTerms c = loss.clamp;
    for_each_group<kWidth>(s.steps, [&](int k,
                                        int g) COUNTERWEIGHT_INLINE_LAMBDA {
      const Vec l = log_ratio.vec(k, g);
      const auto outside = (l > c.upper) | (l < c.lower);
      const Vec r = clip(exp.vec(k, g), splat(c.exp_lower), splat(c.exp_upper));
      s.ratio.set(k, g, r);
      s.excess.set(
          k, g,
          clip(expm1.vec(k, g), splat(c.expm1_lower), splat(c.expm1_upper)));
      s.ratio_slope.set(k, g, outside ? Vec{} : r);
    });
  }

  COUNTERWEIGHT_HD static void apply_surrogate(const LossPlan& loss,
                                               const LossRow& row, State& s) {
    const TileOf<Lanes>& advantages = s.input[kAdvantages];
    const TileOf<Lanes>& log_probs = s.input[kCurrent];
    const TileOf<Lanes>& log_ratios =
        s.log_ratio[static_cast<int>(source_of(loss))];
    const auto each = [&](auto surrogate) COUNTERWEIGHT_INLINE_LAMBDA {
      for_each_group<kWidth>(
          s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
            emit(loss, surrogate(k, g, advantages.vec(k, g)), k, g, s);
          });
    };
    const auto lp = [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
      return log_probs.vec(k, g);
    };
    const auto l = [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
      return log_ratios.vec(k, g);
    };
    const auto r = [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
      return s.ratio.vec(k, g);
    };
    switch (surrogate_of(loss)) {
      case Surrogate::kNone:
        break;
      case Surrogate::kPpoClip:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return ppo_clip(loss, a, r(k, g));
        });
        break;
      case Surrogate::kCispo:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return cispo(loss, a, lp(k, g), r(k, g));
        });
        break;
      case Surrogate::kSapo:
        set_sapo_decay(loss, s);
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return sapo(loss, a, s.excess.vec(k, g), s.estimate.vec(k, g));
        });
        break;
      case Surrogate::kReinforce:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return reinforce(a, lp(k, g));
        });
        break;
      case Surrogate::kDro:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return dro(loss, a, lp(k, g), l(k, g));
        });
        break;
      case Surrogate::kDppoTv:
      case Surrogate::kDppoKl:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return dppo(loss, a, lp(k, g), r(k, g), s.selected.vec(k, g));
        });
        break;
      case Surrogate::kGeoMean:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return geo_mean(loss, a, l(k, g), row.value[0]);
        });
        break;
      case Surrogate::kVespo:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return vespo(a, lp(k, g), row.value[0], row.value[1]);
        });
        break;
      case Surrogate::kRolloutIs:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return rollout_is(loss, a, lp(k, g), r(k, g));
        });
        break;
      case Surrogate::kKlCov:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return kl_cov(loss, a, l(k, g), r(k, g), s.selected.vec(k, g));
        });
        break;
      case Surrogate::kClipCov:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return clip_cov(loss, a, r(k, g), s.selected.vec(k, g));
        });
        break;
      case Surrogate::kCrossEntropy:
        each([&](int k, int g, Vec) COUNTERWEIGHT_INLINE_LAMBDA {
          return cross_entropy(lp(k, g));
        });
        break;
      case Surrogate::kImportanceSampling:
        each([&](int k, int g, Vec a) COUNTERWEIGHT_INLINE_LAMBDA {
          return importance_sampling(a, r(k, g));
        });
        break;
    }
  }

  // exp(-|tau (r - 1)|) into s.estimate.
  COUNTERWEIGHT_HD static void set_sapo_decay(const LossPlan& loss, State& s) {
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec a = s.input[kAdvantages].vec(k, g);
          s.estimate.set(k, g,
                         -absolute(sapo_argument(loss, a, s.excess.vec(k, g))));
        });
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      s.estimate.at[k][i] = exp_terms(s.estimate.at[k][i]).exp;
    });
  }

  // Weights, masks, and the chain from r to the log-prob. A weight of 0 makes
  // everything 0, a slope of 0 stays 0 under an infinite r.
  COUNTERWEIGHT_HD static void emit(const LossPlan& loss, const SurrogateVec& v,
                                    int k, int g, State& s) {
    const Vec zero{};
    const Vec w = may_weigh<Lanes>() && loss.weighs_tokens ? s.weight.vec(k, g)
                                                           : splat(1.0f);
    const Vec dr = s.ratio_slope.vec(k, g);
    const Vec full_through_ratio =
        v.full_ratio_slope != 0.0f ? v.full_ratio_slope * dr : zero;
    const Vec through_ratio = v.stopped != 0.0f ? zero : full_through_ratio;
    const bool by_row =
        Lanes::may(kFeatureRowLoss) && loss.spec.level == LossLevel::kSequence;
    const Vec own = by_row ? v.slope : v.slope + through_ratio;
    const Vec shared = by_row ? through_ratio : zero;
    const Vec full = v.full_slope + full_through_ratio;
    const auto weighs = w != 0.0f;
    const auto kept = (s.left.vec(k, g) != 0.0f) & weighs;
    const auto seen = (s.mask.vec(k, g) != 0.0f) & weighs;
    s.loss_value.set(k, g, kept ? w * v.value : zero);
    s.loss_slope.set(k, g, kept ? w * own : zero);
    s.loss_sequence_slope.set(k, g, kept ? w * shared : zero);
    s.full_slope.set(k, g, seen ? absolute(w * full) : zero);
    s.clipped.set(k, g, v.clipped);
    s.high.set(k, g, v.high);
    s.low.set(k, g, v.low);
    s.capped.set(k, g, v.capped);
    s.beyond_zero.set(k, g, v.beyond_zero);
  }

  // Into s.loss_slope: float32(factor slope + kl slope + handed back), added in
  // this order in float64.
  COUNTERWEIGHT_HD static void make_gradient(const LossPlan& loss,
                                             const LossRow& row, State& s) {
    const TileOf<Lanes>& over =
        Lanes::choose(loss.spec.over == TokenSet::kKept, s.left, s.mask);
    const double factor = row.factor;
    const double kl_factor = loss.spec.kl.coefficient * row.kl_factor;
    const double shared = row.hand_back;
    const bool has_kl = Lanes::may(kFeatureKl) && loss.has_kl;
    const bool hands_back = Lanes::may(kFeatureRowLoss) && loss.hands_back;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      double g = factor * static_cast<double>(s.loss_slope.at[k][i]);
      if (has_kl) g += kl_factor * static_cast<double>(s.kl_slope.at[k][i]);
      if (hands_back) g += shared * static_cast<double>(over.at[k][i]);
      const float narrow = static_cast<float>(g);
      const float canonical = select(narrow == narrow, narrow, kCanonicalNaN);
      s.loss_slope.at[k][i] = select(s.mask.at[k][i] != 0.0f, canonical, 0.0f);
    });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_PHASE_H_
