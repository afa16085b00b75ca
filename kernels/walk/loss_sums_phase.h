// Adds a tile's losses to the columns of the loss pass.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_SUMS_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_SUMS_PHASE_H_

#include "kernels/surrogates/surrogate.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/exact_log_ratio.h"
#include "kernels/walk/loss_ratios.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossSumsPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  static constexpr int kBase = kColumnLoss;

  // The loss alone where metrics are not wanted.
  COUNTERWEIGHT_HD static void run(const Plan& plan, bool has_drift,
                                   bool measured, const State& s, Acc& acc) {
    const bool has_kl = needs<Lanes>(plan, kNeedKl);
    add_values(plan, s, acc);
    if (has_kl) add_kl_values(plan, s, acc);
    if (!measured) return;
    add_log_ratios(plan, has_drift, s, acc);
    collect(plan, s, acc);
    acc.extend(kExtremumLoss + kLossExtremumAdvantage, s.steps,
               s.input[static_cast<int>(InputRole::kAdvantages)], s.mask);
    if (has_kl) add_kl(plan, s, acc);
  }

  // Copies sums over all tokens to the sums over kept ones where no rule drops
  // any.
  template <class Columns>
  COUNTERWEIGHT_HD static void finish(const Plan& plan, Columns& columns) {
    if (!measures<Lanes>(plan) || has_rules<Lanes>(plan)) return;
    columns.sum(kBase + kLossLogRatioKept) = columns.sum(kBase + kLossLogRatio);
    if (!serves_peers(plan)) return;
    constexpr int kCopies[][2] = {{kLossClipped, kLossClippedKept},
                                  {kLossHigh, kLossHighKept},
                                  {kLossLow, kLossLowKept}};
    for (const auto& [seen, kept] : kCopies) {
      columns.count(kBase + kept) = columns.count(kBase + seen);
    }
  }

 private:
  COUNTERWEIGHT_HD static const LossTiles<Lanes>& tiles(const State& s) {
    return s.tiles.template get<LossTiles<Lanes>>();
  }

  COUNTERWEIGHT_HD static bool serves_peers(const Plan& plan) {
    return needs<Lanes>(plan, kNeedPeerLoss);
  }

  COUNTERWEIGHT_HD static void add_tile(int column, const State& s,
                                        const TileOf<Lanes>& x, Acc& acc) {
    acc.add_exact(kBase + column, s.steps,
                  [&](int k, int h)
                      COUNTERWEIGHT_INLINE_LAMBDA { return x.wide(k, h); });
  }

  COUNTERWEIGHT_HD static void add_values(const Plan& plan, const State& s,
                                          Acc& acc) {
    const LossTiles<Lanes>& t = tiles(s);
    add_tile(kLossValue, s, t.value, acc);
    if (needs<Lanes>(plan, kNeedRowGradient)) {
      add_tile(kLossSequenceSlope, s, t.sequence_slope, acc);
    }
  }

  // Masked tokens have l = 0; dropped ones are left out of the kept sums.
  COUNTERWEIGHT_HD static void add_log_ratios(const Plan& plan, bool has_drift,
                                              const State& s, Acc& acc) {
    const LossPlan& loss = plan.loss;
    const RatioSource source =
        Lanes::source(SourceUse::kLossMetrics, loss.spec.metrics_source);
    add_exact_log_ratios(s, source, kUnbounded, s.mask, true,
                         has_drift && measures_drift_of<Lanes>(plan, source),
                         kBase + kLossLogRatio, acc);
    const bool drops = has_rules<Lanes>(plan);
    if (drops) {
      add_exact_log_ratios(s, source, kUnbounded, s.kept, false, false,
                           kBase + kLossLogRatioKept, acc);
    }
    if (!serves_peers(plan)) return;
    const TileOf<Lanes>& l = s.log_ratio[static_cast<int>(source)];
    const Vec clamp = splat(static_cast<float>(kSafetyClamp));
    const int columns[] = {kBase + kLossAbsKept, kBase + kLossSafeKept};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[2]) COUNTERWEIGHT_INLINE_LAMBDA {
              const Vec all = l.vec(k, g);
              const Vec kept = s.kept.vec(k, g) != 0.0f ? all : Vec{};
              const Vec x = drops ? kept : all;
              block[0] += absolute(x);
              block[1] += clip(x, -clamp, clamp);
            });
  }

  // Slopes, ratios and flags.
  COUNTERWEIGHT_HD static void collect(const Plan& plan, const State& s,
                                       Acc& acc) {
    const bool by_row = needs<Lanes>(plan, kNeedRowRatio);
    if (has_rules<Lanes>(plan)) {
      by_row ? collect_of<true, true>(plan, s, acc)
             : collect_of<true, false>(plan, s, acc);
    } else {
      by_row ? collect_of<false, true>(plan, s, acc)
             : collect_of<false, false>(plan, s, acc);
    }
    if (!serves_peers(plan)) return;
    add_peer_sums(plan, s, acc);
  }

  template <bool kRules, bool kByRow>
  COUNTERWEIGHT_HD static void collect_of(const Plan& plan, const State& s,
                                          Acc& acc) {
    const LossTiles<Lanes>& t = tiles(s);
    const TileOf<Lanes>& ratios = LossRatios<Lanes>::ratio(plan.loss, s, t);
    const TileOf<Lanes>& counted =
        Lanes::choose(needs<Lanes>(plan, kNeedDroppedLoss), s.mask, s.kept);
    // The slope that clipping took; 0 where both are infinite.
    const auto lost = [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
      const Vec own = t.slope.vec(k, g);
      const Vec applied =
          absolute(kByRow ? own + t.sequence_slope.vec(k, g) : own);
      return most(t.full_slope.vec(k, g) - applied, Vec{});
    };
    constexpr int kSums = kRules ? 4 : 3;
    PassColumns<kSums, 4> columns = {
        {kBase + kLossRatio, kBase + kLossSlope, kBase + kLossSlopeClipped},
        {kBase + kLossClipped, kBase + kLossHigh, kBase + kLossLow,
         kBase + kLossCappedKept},
        kExtremumLoss + kLossExtremumRatio};
    if constexpr (kRules) columns.sums[3] = kBase + kLossSlopeRejected;
    acc.collect(columns, s.steps,
                [&](int k, int g, auto& to) COUNTERWEIGHT_INLINE_LAMBDA {
                  const Vec m = s.mask.vec(k, g);
                  const Vec ratio = ratios.vec(k, g);
                  const auto counts = m != 0.0f;
                  add_where(counts, ratio, to.sum[0]);
                  to.extend_where(counts, ratio);
                  const Vec full = t.full_slope.vec(k, g);
                  to.sum[1] += full;
                  if constexpr (kRules) {
                    const auto kept = counted.vec(k, g) != 0.0f;
                    to.sum[2] += kept ? lost(k, g) : Vec{};
                    to.sum[3] += kept ? Vec{} : full;
                  } else {
                    // Masked tokens have slopes of 0.
                    to.sum[2] += lost(k, g);
                  }
                  count_flag(t.clipped.vec(k, g), m, to.count[0]);
                  count_flag(t.high.vec(k, g), m, to.count[1]);
                  count_flag(t.low.vec(k, g), m, to.count[2]);
                  count_flag(t.capped.vec(k, g), s.kept.vec(k, g), to.count[3]);
                });
  }

  COUNTERWEIGHT_HD static void add_peer_sums(const Plan& plan, const State& s,
                                             Acc& acc) {
    const LossTiles<Lanes>& t = tiles(s);
    const TileOf<Lanes>& ratios = LossRatios<Lanes>::ratio(plan.loss, s, t);
    const int clipped[] = {kBase + kLossClippedRatio};
    acc.add(clipped, s.steps,
            [&](int k, int g, Vec(&block)[1]) COUNTERWEIGHT_INLINE_LAMBDA {
              add_where(s.mask.vec(k, g) != 0.0f,
                        clip(plan.loss, ratios.vec(k, g)), block[0]);
            });
    if (Lanes::may(kNeedSurrogates)) {
      const int zero[] = {kBase + kLossClippedZeroKept};
      acc.count(zero, s.steps,
                [&](int k, int g, Vec(&block)[1]) COUNTERWEIGHT_INLINE_LAMBDA {
                  count_flag(t.beyond_zero.vec(k, g), s.kept.vec(k, g),
                             block[0]);
                });
    }
    if (!has_rules<Lanes>(plan)) return;
    const int sides[] = {kBase + kLossClippedKept, kBase + kLossHighKept,
                         kBase + kLossLowKept};
    acc.count(sides, s.steps,
              [&](int k, int g, Vec(&block)[3]) COUNTERWEIGHT_INLINE_LAMBDA {
                const Vec kept = s.kept.vec(k, g);
                count_flag(t.clipped.vec(k, g), kept, block[0]);
                count_flag(t.high.vec(k, g), kept, block[1]);
                count_flag(t.low.vec(k, g), kept, block[2]);
              });
  }

  COUNTERWEIGHT_HD static void add_kl_values(const Plan& plan, const State& s,
                                             Acc& acc) {
    const LossTiles<Lanes>& t = tiles(s);
    add_tile(kLossKl, s, t.kl_value, acc);
    if (needs<Lanes>(plan, kNeedRowGradient)) {
      add_tile(kLossKlSequenceSlope, s, t.kl_sequence_slope, acc);
    }
  }

  COUNTERWEIGHT_HD static void add_kl(const Plan& plan, const State& s,
                                      Acc& acc) {
    const TokenSet over_set = plan.loss.spec.kl.over;
    const TileOf<Lanes>& over =
        Lanes::choose(over_set == TokenSet::kKept, s.kept, s.mask);
    if (serves_peers(plan)) {
      const bool is_of_ref =
          !(needs<Lanes>(plan, kNeedKlRatio) && plan.loss.has_kl_source);
      const ExactLogRatio<Lanes> exact(
          s, is_of_ref ? RatioSource::kRefCurrent : plan.loss.spec.kl.source,
          kUnbounded);
      acc.add_exact(kBase + kLossRefLogRatio, s.steps,
                    [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                      const WideVec l = exact(k, h);
                      return is_of_ref ? -l : l;
                    });
    }
    acc.count_each(kBase + kLossKlTokens, s.steps,
                   [&](int k, int g)
                       COUNTERWEIGHT_INLINE_LAMBDA { return over.vec(k, g); });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_SUMS_PHASE_H_
