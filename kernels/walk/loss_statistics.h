// Phase 5 of a tile, statistics: what the loss of a row's tokens needs to know
// of the whole row or batch.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_STATISTICS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_STATISTICS_H_

#include "kernels/math/exp.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossStatistics {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  static constexpr int kCurrent = static_cast<int>(InputRole::kCurrent);
  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

  COUNTERWEIGHT_HD static void run(const Plan& plan, const LossContext& context,
                                   State& s, Acc& acc) {
    const LossPlan& loss = plan.loss;
    if (!loss.by_row && !loss.selects) return;
    const TileOf<Lanes>& over =
        Lanes::choose(loss.spec.over == TokenSet::kKept, s.left, s.mask);
    acc.count_each(kColumnLoss + kLossSeen, s.steps,
                   [&](int k, int g)
                       COUNTERWEIGHT_INLINE_LAMBDA { return over.vec(k, g); });
    add_aggregate(loss, s, over, acc);
    const bool selects = Lanes::may(kFeatureSelection) && loss.selects;
    const bool geo_mean = Lanes::may(kFeatureSurrogates) &&
                          loss.spec.surrogate == Surrogate::kGeoMean;
    if (geo_mean || selects) {
      add_input(kLossAdvantage, s, s.input[kAdvantages], over, acc);
    }
    if (selects) add_input(kLossLogProb, s, s.input[kCurrent], over, acc);
    add_log_weights(plan, context, s, over, acc);
  }

 private:
  COUNTERWEIGHT_HD static void add_input(int column, const State& s,
                                         const TileOf<Lanes>& input,
                                         const TileOf<Lanes>& over, Acc& acc) {
    acc.add_exact(kColumnLoss + column, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    return over.wide(k, h) != 0.0 ? input.wide(k, h)
                                                  : WideVec{};
                  });
  }

  // l, clamped at 20 for VESPO; for GMPO clipped at one end, the one that A
  // pulls it to.
  COUNTERWEIGHT_HD static void add_aggregate(const LossPlan& loss,
                                             const State& s,
                                             const TileOf<Lanes>& over,
                                             Acc& acc) {
    const Surrogate surrogate = loss.spec.surrogate;
    const bool others = Lanes::may(kFeatureSurrogates);
    const bool geo_mean = others && surrogate == Surrogate::kGeoMean;
    const bool vespo = others && surrogate == Surrogate::kVespo;
    if (!geo_mean && !vespo && loss.spec.level == LossLevel::kToken) return;
    const RatioSource source =
        Lanes::source(SourceUse::kLoss, loss.spec.source);
    const double clamp = vespo ? kVespoLogCeiling : kUnbounded;
    const WideVec lowest = splat_wide(-loss.spec.clip_low);
    const WideVec highest = splat_wide(loss.spec.clip_high);
    const TileOf<Lanes>& advantages = s.input[kAdvantages];
    acc.add_exact(kColumnLoss + kLossAggregate, s.steps,
                  [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                    const WideVec l = exact_log_ratio(s, source, clamp, k, h);
                    WideVec x = l;
                    if (geo_mean) {
                      const WideVec a = advantages.wide(k, h);
                      const WideVec capped = l > highest ? highest : l;
                      const WideVec raised = l < lowest ? lowest : l;
                      const WideVec raised_or_zero =
                          a < 0.0 ? raised : WideVec{};
                      x = a > 0.0 ? capped : raised_or_zero;
                    }
                    return over.wide(k, h) != 0.0 ? x : WideVec{};
                  });
  }

  // Logarithms of the weights as they are returned: VESPO within [log 1e-8,
  // 20], GMPO of w + 1e-10.
  COUNTERWEIGHT_HD static void add_log_weights(const Plan& plan,
                                               const LossContext& context,
                                               State& s,
                                               const TileOf<Lanes>& over,
                                               Acc& acc) {
    const Surrogate surrogate = plan.loss.spec.surrogate;
    const bool vespo = surrogate == Surrogate::kVespo;
    const Level level = plan.weight.spec.level;
    if (!Lanes::may(kFeatureSurrogates)) return;
    if (!vespo && surrogate != Surrogate::kGeoMean) return;
    if (level != Level::kToken && level != Level::kPrefix) return;
    LaneValues<kWidth, double>& sum =
        acc.columns.sum(kColumnLoss + kLossLogWeight);
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        if (over.at[k][i] == 0.0f) continue;
        const float bounded = s.weight.at[k][i];
        const double own = static_cast<double>(bounded) / context.normalizer;
        const double w = s.zeroed.at[k][i] != 0.0f
                             ? 0.0
                             : static_cast<double>(static_cast<float>(own));
        sum.at[i] += vespo ? vespo_log(w) : log64(w + 1e-10);
      }
    }
  }

  COUNTERWEIGHT_HD static double vespo_log(double w) {
    const double log = log64(w > kVespoFloor ? w : kVespoFloor);
    return log < kVespoLogCeiling ? log : kVespoLogCeiling;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_STATISTICS_H_
