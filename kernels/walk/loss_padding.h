// Masked positions, for the peers' metrics and losses that include them
// (LossSpec::measures_padding, counts_padding). Nothing else reads them.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_PADDING_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_PADDING_H_

#include "kernels/math/exp.h"
#include "kernels/surrogates/list.h"
#include "kernels/walk/accumulators.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossPadding {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  static constexpr int kBase = kColumnLoss;

  COUNTERWEIGHT_HD static void run(const Plan& plan, const Batch& batch,
                                   const RowState& row, State& s, Acc& acc) {
    const LossPlan& loss = plan.loss;
    PaddingTiles<Lanes>& t = s.padding;
    load(plan, batch, row.loss, s, t);
    set_ratios(loss, row.loss, s, t);
    apply_surrogate(plan, row, s, t);
    if (loss.spec.counts_padding) {
      add(kLossPadding, s, t.value, acc);
      // The row's single ratio passes the gradient of its padding to its
      // tokens.
      if (loss.needs_row_gradient) {
        add(kLossSequenceSlope, s, t.sequence_slope, acc);
      }
    }
    acc.extend(kExtremumLoss + kLossExtremumPaddingRatio, s.steps, t.ratio,
               t.is_padding);
    add(kLossPaddingAdvantage, s, t.advantages, acc);
    const int columns[] = {kBase + kLossPaddingHigh, kBase + kLossPaddingLow};
    acc.count(columns, s.steps,
              [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
                block[0] += t.high.vec(k, g);
                block[1] += t.low.vec(k, g);
              });
    if (loss.has_kl) add_kl(loss, row.loss, s, t, acc);
  }

 private:
  using Tiles = PaddingTiles<Lanes>;

  COUNTERWEIGHT_HD static void add(int column, const State& s,
                                   const TileOf<Lanes>& x, Acc& acc) {
    acc.add_exact(kBase + column, s.steps,
                  [&](int k, int h)
                      COUNTERWEIGHT_INLINE_LAMBDA { return x.wide(k, h); });
  }

  COUNTERWEIGHT_HD static void load(const Plan& plan, const Batch& batch,
                                    const LossRow& row, const State& s,
                                    Tiles& t) {
    const LossPlan& loss = plan.loss;
    Lanes::load_mask(batch.response_mask, s.position, s.count, t.is_padding);
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const bool inside = k * kLanes + Lanes::lane(i) < s.count;
      t.is_padding.at[k][i] =
          select(inside, 1.0f - t.is_padding.at[k][i], 0.0f);
    });
    load(batch, InputRole::kCurrent, s, t, t.current);
    drop_non_finite(s, t.current, t);
    if (loss.has_ratio) {
      load(batch, static_cast<InputRole>(denominator(loss.spec.source)), s, t,
           t.denominator);
      drop_non_finite(s, t.denominator, t);
    }
    if (loss.has_kl) {
      load(batch, InputRole::kRef, s, t, t.kl);
      drop_non_finite(s, t.kl, t);
    }
    load(batch, InputRole::kAdvantages, s, t, t.advantages);
    const double scale = row.advantage;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float x = t.advantages.at[k][i];
      const float a = select(is_finite(x), x, 0.0f);
      t.advantages.at[k][i] =
          static_cast<float>(static_cast<double>(a) * scale);
    });
  }

  COUNTERWEIGHT_HD static void load(const Batch& batch, InputRole role,
                                    const State& s, Tiles& t,
                                    TileOf<Lanes>& out) {
    Lanes::load(batch.tensors[static_cast<int>(role)], s.position, s.count,
                t.is_padding, out);
  }

  // A position with a non-finite log-prob does not count as padding.
  COUNTERWEIGHT_HD static void drop_non_finite(const State& s,
                                               const TileOf<Lanes>& log_probs,
                                               Tiles& t) {
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      float& padding = t.is_padding.at[k][i];
      padding = select(is_finite(log_probs.at[k][i]), padding, 0.0f);
    });
  }

  COUNTERWEIGHT_HD static void set_ratios(const LossPlan& loss,
                                          const LossRow& row, const State& s,
                                          Tiles& t) {
    if (!loss.has_ratio || loss.spec.level != LossLevel::kToken) {
      for_each_group<kWidth>(
          s.steps, [&](int k, int g) { t.ratio.set(k, g, splat(row.ratio)); });
      return;
    }
    const IntervalTerms c = loss.clamp;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float l = t.current.at[k][i] - t.denominator.at[k][i];
      const float raised = l > c.lower ? l : c.lower;
      const float clamped = raised < c.upper ? raised : c.upper;
      t.ratio.at[k][i] = exp_terms(clamped).exp;
    });
  }

  // dr / dS of the row; 0 where nothing goes through it.
  COUNTERWEIGHT_HD static Vec row_slope(const LossPlan& loss,
                                        const LossRow& row) {
    return splat(loss.needs_row_gradient ? row.slope : 0.0f);
  }

  COUNTERWEIGHT_HD static void apply_surrogate(const Plan& plan,
                                               const RowState& row,
                                               const State& s, Tiles& t) {
    const LossPlan& loss = plan.loss;
    const float own_weight = IsSequenceLevel(plan.weight.spec.level)
                                 ? row.weight
                                 : loss.padding_weight;
    const float weight = loss.weighs_tokens ? own_weight : 1.0f;
    const float weight_of_row = row.loss.padding_counts ? weight : 0.0f;
    const Vec ratio_slope = row_slope(loss, row.loss);
    for_each_group<kWidth>(s.steps, [&](int k,
                                        int g) COUNTERWEIGHT_INLINE_LAMBDA {
      SurrogateInput x{};
      x.a = t.advantages.vec(k, g);
      x.lp = t.current.vec(k, g);
      x.r = t.ratio.vec(k, g);
      SurrogateVec v{};
      with_surrogate<SurrogateWith<AnySurrogate, kTraitPadding>>(
          loss.spec.surrogate, [&](auto surrogate) COUNTERWEIGHT_INLINE_LAMBDA {
            v = surrogate.value(loss, x);
          });
      const Vec m = t.is_padding.vec(k, g);
      const Vec w = m != 0.0f ? splat(weight_of_row) : Vec{};
      const auto slopes = (v.full_ratio_slope != 0.0f) & (v.stopped == 0.0f);
      const Vec slope = v.full_ratio_slope * ratio_slope;
      t.value.set(k, g, w != 0.0f ? v.value * w : Vec{});
      t.sequence_slope.set(k, g, slopes ? slope * w : Vec{});
      t.high.set(k, g, v.high * m);
      t.low.set(k, g, v.low * m);
    });
  }

  COUNTERWEIGHT_HD static void add_kl(const LossPlan& loss, const LossRow& row,
                                      const State& s, Tiles& t, Acc& acc) {
    const bool weighted = loss.spec.kl.importance_weighted;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float k3 = exp_terms(t.kl.at[k][i] - t.current.at[k][i]).k3;
      const float r = weighted ? t.ratio.at[k][i] : 1.0f;
      t.kl.at[k][i] = select(t.is_padding.at[k][i] != 0.0f, k3 * r, 0.0f);
    });
    add(kLossPaddingKl, s, t.kl, acc);
    // k dr / dS; the tile holds k r, and the slope is r or 0.
    const bool slopes = loss.needs_row_gradient && row.slope != 0.0f;
    if (!loss.spec.counts_padding || !weighted || !slopes) return;
    add(kLossKlSequenceSlope, s, t.kl, acc);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_PADDING_H_
