// Masked positions, for the peers' metrics and losses that include them
// (LossSpec::measures_padding, counts_padding). Nothing else reads them.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_PADDING_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_PADDING_H_

#include "kernels/math/exp.h"
#include "kernels/walk/surrogates.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossPadding {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  static constexpr int kBase = kColumnLoss;

  // After the tile's own sums: takes their tiles as scratch.
  COUNTERWEIGHT_HD static void run(const Plan& plan, const Batch& batch,
                                   const RowState& row, State& s, Acc& acc) {
    const LossPlan& loss = plan.loss;
    TileOf<Lanes>& padding = s.selected;
    Lanes::load_mask(batch.response_mask, s.position, s.count, padding);
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const bool inside = k * kLanes + Lanes::lane(i) < s.count;
      padding.at[k][i] = select(inside, 1.0f - padding.at[k][i], 0.0f);
    });
    load(batch, InputRole::kCurrent, s, s.statistic);
    drop_non_finite(s, s.statistic);
    if (loss.has_ratio) {
      load(batch, static_cast<InputRole>(denominator(loss.spec.source)), s,
           s.excess);
      drop_non_finite(s, s.excess);
    }
    if (loss.has_kl) {
      load(batch, InputRole::kRef, s, s.capped);
      drop_non_finite(s, s.capped);
    }
    load(batch, InputRole::kAdvantages, s, s.estimate);
    const double scale = row.loss.advantage_scale;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = s.estimate.at[k][i];
      const float a = select(is_finite(x), x, 0.0f);
      s.estimate.at[k][i] = static_cast<float>(static_cast<double>(a) * scale);
    });
    const TileOf<Lanes>& advantages = s.estimate;
    const TileOf<Lanes>& current = s.statistic;
    if (loss.has_ratio && loss.spec.level == LossLevel::kToken) {
      set_ratios(loss, s);
    }
    const Surrogate surrogate = loss.spec.surrogate;
    const bool ppo = surrogate == Surrogate::kPpoClip;
    const bool cispo_loss = surrogate == Surrogate::kCispo;
    const float own_weight = IsSequenceLevel(plan.weight.spec.level)
                                 ? row.weight
                                 : loss.padding_weight;
    const float weight = loss.weighs_tokens ? own_weight : 1.0f;
    const float weight_of_row = row.loss.padding_counts ? weight : 0.0f;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int g = 0; g < kWidth / kVecLanes; ++g) {
        const Vec a = advantages.vec(k, g);
        const Vec r = s.ratio.vec(k, g);
        SurrogateVec v{};
        if (ppo) v = ppo_clip(loss, a, r);
        if (cispo_loss) v = cispo(loss, a, current.vec(k, g), r);
        const Vec m = padding.vec(k, g);
        const Vec w = m != 0.0f ? splat(weight_of_row) : Vec{};
        const auto slopes = (v.full_ratio_slope != 0.0f) & (v.stopped == 0.0f);
        const Vec slope = v.full_ratio_slope * s.ratio_slope.vec(k, g);
        s.full_slope.set(k, g, w != 0.0f ? v.value * w : Vec{});
        s.loss_sequence_slope.set(k, g, slopes ? slope * w : Vec{});
        s.high.set(k, g, v.high * m);
        s.low.set(k, g, v.low * m);
      }
    }
    if (loss.spec.counts_padding) {
      add(kLossPadding, s, s.full_slope, acc);
      // The row's one ratio hands its padding's gradient to its tokens.
      if (loss.hands_back) {
        add(kLossSequenceSlope, s, s.loss_sequence_slope, acc);
      }
    }
    acc.extend(kExtremumLoss + kLossExtremumPaddingRatio, s.steps, s.ratio,
               padding);
    add(kLossPaddingAdvantage, s, advantages, acc);
    const int columns[] = {kBase + kLossPaddingHigh, kBase + kLossPaddingLow};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                block[0] += s.high.vec(k, g);
                block[1] += s.low.vec(k, g);
              });
    if (loss.has_kl) add_kl(loss, s, acc);
  }

 private:
  COUNTERWEIGHT_HD static void add(int column, const State& s,
                                   const TileOf<Lanes>& x, Acc& acc) {
    acc.add_exact(kBase + column, s.steps,
                  [&](int k, int h)
                      COUNTERWEIGHT_INLINE_LAMBDA { return x.wide(k, h); });
  }

  COUNTERWEIGHT_HD static void load(const Batch& batch, InputRole role,
                                    const State& s, TileOf<Lanes>& out) {
    Lanes::load(batch.tensors[static_cast<int>(role)], s.position, s.count,
                s.selected, out);
  }

  // A position whose log-prob is not finite is no padding either.
  COUNTERWEIGHT_HD static void drop_non_finite(State& s,
                                               const TileOf<Lanes>& log_probs) {
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      float& padding = s.selected.at[k][i];
      padding = select(is_finite(log_probs.at[k][i]), padding, 0.0f);
    });
  }

  COUNTERWEIGHT_HD static void set_ratios(const LossPlan& loss, State& s) {
    const IntervalTerms c = loss.clamp;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float l = s.statistic.at[k][i] - s.excess.at[k][i];
      const float raised = l > c.lower ? l : c.lower;
      const float clamped = raised < c.upper ? raised : c.upper;
      s.ratio.at[k][i] = exp_terms(clamped).exp;
    });
  }

  COUNTERWEIGHT_HD static void add_kl(const LossPlan& loss, State& s,
                                      Acc& acc) {
    const TileOf<Lanes>& current = s.statistic;
    TileOf<Lanes>& ref = s.capped;
    const bool weighted = loss.spec.kl.importance_weighted;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float k3 = exp_terms(ref.at[k][i] - current.at[k][i]).k3;
      const float r = weighted ? s.ratio.at[k][i] : 1.0f;
      ref.at[k][i] = select(s.selected.at[k][i] != 0.0f, k3 * r, 0.0f);
    });
    add(kLossPaddingKl, s, ref, acc);
    if (!loss.spec.counts_padding || !loss.hands_back || !weighted) return;
    // k dr / dS; the tile holds k r.
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      ref.at[k][i] = select(s.ratio_slope.at[k][i] != 0.0f, ref.at[k][i], 0.0f);
    });
    add(kLossKlSequenceSlope, s, ref, acc);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_PADDING_H_
