// Phase 5 of a tile, statistics: the whole-row and whole-batch sums that the
// loss of a row's tokens needs.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_STATISTICS_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_STATISTICS_H_

#include "kernels/surrogates/list.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/exact_log_ratio.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct LossStatistics {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;
  // Surrogates of this walk with a V of the row.
  using OfRow = SurrogateWith<SurrogateOfWalk<Lanes>, kTraitRow>;
  static constexpr int kCurrent = static_cast<int>(InputRole::kCurrent);
  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

  COUNTERWEIGHT_HD static void run(const Plan& plan, const LossContext& context,
                                   State& s, Acc& acc) {
    const LossPlan& loss = plan.loss;
    const TileOf<Lanes>& over =
        Lanes::choose(loss.spec.over == TokenSet::kKept, s.kept, s.mask);
    acc.count_each(kColumnLoss + kLossSeen, s.steps,
                   [&](int k, int g)
                       COUNTERWEIGHT_INLINE_LAMBDA { return over.vec(k, g); });
    add_aggregate(plan, s, over, acc);
    if (Lanes::may(kNeedSurrogates) && loss.sums_advantages) {
      add_input(kLossAdvantage, s, s.input[kAdvantages], over, acc);
    }
    if (needs<Lanes>(plan, kNeedSelection)) {
      add_input(kLossLogProb, s, s.input[kCurrent], over, acc);
    }
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

  // Adds the terms of the row's ratio or V.
  COUNTERWEIGHT_HD static void add_aggregate(const Plan& plan, const State& s,
                                             const TileOf<Lanes>& over,
                                             Acc& acc) {
    const LossPlan& loss = plan.loss;
    const RatioSource source =
        Lanes::source(SourceUse::kLoss, loss.spec.source);
    const TileOf<Lanes>& advantages = s.input[kAdvantages];
    const auto add = [&](double clamp,
                         auto addend) COUNTERWEIGHT_INLINE_LAMBDA {
      const ExactLogRatio<Lanes> exact(s, source, clamp);
      acc.add_exact(kColumnLoss + kLossAggregate, s.steps,
                    [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                      const WideVec x =
                          addend(exact(k, h), advantages.wide(k, h));
                      return over.wide(k, h) != 0.0 ? x : WideVec{};
                    });
    };
    if (loss.spec.level != LossLevel::kToken) {
      add_exact_log_ratios(
          s, source, kUnbounded, over,
          loss.spec.over != TokenSet::kKept || !has_rules<Lanes>(plan),
          measures_drift_of<Lanes>(plan, source), kColumnLoss + kLossAggregate,
          acc);
      return;
    }
    with_surrogate<OfRow>(
        loss.spec.surrogate, [&](auto surrogate) COUNTERWEIGHT_INLINE_LAMBDA {
          add(surrogate.kAggregateClamp,
              [&](WideVec l, WideVec a) COUNTERWEIGHT_INLINE_LAMBDA {
                return surrogate.aggregate(loss, l, a);
              });
        });
  }

  // Logarithms of the weights as they are returned.
  COUNTERWEIGHT_HD static void add_log_weights(const Plan& plan,
                                               const LossContext& context,
                                               State& s,
                                               const TileOf<Lanes>& over,
                                               Acc& acc) {
    if (!needs<Lanes>(plan, kAnyTokenWeights)) return;
    const bool zeroes = needs<Lanes>(plan, kNeedZeroing);
    LaneValues<kWidth, double>& sum =
        acc.columns.sum(kColumnLoss + kLossLogWeight);
    with_surrogate<OfRow>(plan.loss.spec.surrogate, [&](auto surrogate) {
      COUNTERWEIGHT_UNROLL
      for (int k = 0; k < s.steps; ++k) {
        for (int i = 0; i < kWidth; ++i) {
          if (over.at[k][i] == 0.0f) continue;
          const float bounded = s.weight.at[k][i];
          const double own = static_cast<double>(bounded) / context.normalizer;
          const bool is_zeroed = zeroes && s.zeroed.at[k][i] != 0.0f;
          const double w =
              is_zeroed ? 0.0 : static_cast<double>(static_cast<float>(own));
          sum.at[i] += surrogate.log_weight(w);
        }
      }
    });
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_STATISTICS_H_
