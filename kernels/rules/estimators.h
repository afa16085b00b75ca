// Estimators, the per-token statistics of rejection rules: one struct for each
// Estimator. To add one: its struct here, in Estimators in the order of the
// enum.
#ifndef COUNTERWEIGHT_KERNELS_RULES_ESTIMATORS_H_
#define COUNTERWEIGHT_KERNELS_RULES_ESTIMATORS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/math/exp.h"
#include "kernels/plan/plan.h"
#include "kernels/rules/info.h"
#include "kernels/tile/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// l, clamped.
struct RatioEstimator {
  static constexpr Estimator kEstimator = Estimator::kRatio;
  static constexpr EstimatorInfo kInfo = {
      "ratio", kEstimatesLogRatio | kEstimatorIsSigned};

  // Writes t.statistic; `source` is the rule's.
  template <class Lanes>
  COUNTERWEIGHT_HD static void evaluate(const ClampTerms& c, RatioSource source,
                                        const TileState<Lanes>& s,
                                        RuleTiles<Lanes>& t) {
    const TileOf<Lanes>& l = s.log_ratio[static_cast<int>(source)];
    const Vec end = splat(c.clamp);
    for_each_group<Lanes::kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          t.statistic.set(k, g, clip(l.vec(k, g), -end, end));
        });
  }
};

// l^2 / 2.
struct K2Estimator {
  static constexpr Estimator kEstimator = Estimator::kK2;
  static constexpr EstimatorInfo kInfo = {"k2"};

  template <class Lanes>
  COUNTERWEIGHT_HD static void evaluate(const ClampTerms& c, RatioSource source,
                                        const TileState<Lanes>& s,
                                        RuleTiles<Lanes>& t) {
    const TileOf<Lanes>& log_ratio = s.log_ratio[static_cast<int>(source)];
    const Vec end = splat(c.k2);
    for_each_group<Lanes::kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec l = log_ratio.vec(k, g);
          t.statistic.set(k, g, least(splat(0.5f) * (l * l), end));
        });
  }
};

// exp(l) - 1 - l.
struct K3Estimator {
  static constexpr Estimator kEstimator = Estimator::kK3;
  static constexpr EstimatorInfo kInfo = {"k3", kEstimatorReadsExp};

  template <class Lanes>
  COUNTERWEIGHT_HD static void evaluate(const ClampTerms& c, RatioSource source,
                                        const TileState<Lanes>& s,
                                        RuleTiles<Lanes>& t) {
    const TileOf<Lanes>& log_ratio = s.log_ratio[static_cast<int>(source)];
    const TileOf<Lanes>& k3s = s.k3[static_cast<int>(source)];
    const Vec high = splat(c.k3_high);
    const Vec low = splat(c.k3_low);
    for_each_group<Lanes::kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec end = log_ratio.vec(k, g) > 0.0f ? high : low;
          t.statistic.set(k, g, least(k3s.vec(k, g), end));
        });
  }
};

// A function of both log-probs of the rule's ratio source, in float64:
// Of::statistic(numerator, denominator).
template <class Of>
struct LogProbsEstimator {
  // Masked positions have equal log-probs, and 0.
  template <class Lanes>
  COUNTERWEIGHT_HD static void evaluate(const ClampTerms& /*c*/,
                                        RatioSource source,
                                        const TileState<Lanes>& s,
                                        RuleTiles<Lanes>& t) {
    const TileOf<Lanes>& num = s.input[numerator(source)];
    const TileOf<Lanes>& den = s.input[denominator(source)];
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < Lanes::kWidth; ++i) {
        t.statistic.at[k][i] = static_cast<float>(
            Of::statistic(static_cast<double>(num.at[k][i]),
                          static_cast<double>(den.at[k][i])));
      }
    }
  }
};

// Divergences of two probabilities of one token, p = exp(denominator) and q =
// exp(numerator), as OpenRLHF 0.11.2 gates by them (openrlhf/models/loss.py).
// Of::divergence(p, q) is the divergence.
template <class Of>
struct DivergenceEstimator : LogProbsEstimator<DivergenceEstimator<Of>> {
  struct Probability {
    double of;
    double rest;  // 1 - of, accurate where `of` is near 1
  };

  COUNTERWEIGHT_HD static double statistic(double numerator,
                                           double denominator) {
    const Probability p = bounded(denominator);
    return Of::divergence(p, bounded(numerator));
  }

 private:
  // exp(log_prob) in [1e-6, 1 - 1e-6].
  COUNTERWEIGHT_HD static Probability bounded(double log_prob) {
    const ExpTerms64 terms = exp_terms64(log_prob);
    return {inside(terms.exp), inside(-terms.expm1)};
  }

  COUNTERWEIGHT_HD static double inside(double x) {
    constexpr double kLeast = kLeastProbability;
    constexpr double kMost = 1.0 - kLeastProbability;
    const double raised = x > kLeast ? x : kLeast;
    return raised < kMost ? raised : kMost;
  }
};

struct BinaryKlEstimator : DivergenceEstimator<BinaryKlEstimator> {
  static constexpr Estimator kEstimator = Estimator::kBinaryKl;
  static constexpr EstimatorInfo kInfo = {"binary_kl", kEstimatesDivergence};

  COUNTERWEIGHT_HD static double divergence(const Probability& p,
                                            const Probability& q) {
    return p.of * log64(p.of / q.of) + p.rest * log64(p.rest / q.rest);
  }
};

struct TotalVariationEstimator : DivergenceEstimator<TotalVariationEstimator> {
  static constexpr Estimator kEstimator = Estimator::kTotalVariation;
  static constexpr EstimatorInfo kInfo = {"total_variation",
                                          kEstimatesDivergence};

  COUNTERWEIGHT_HD static double divergence(const Probability& p,
                                            const Probability& q) {
    return __builtin_fabs(p.of - q.of);
  }
};

// q - p: prime-rl @559b4477 bounds it by dppo_mask_low and dppo_mask_high, ROLL
// @8eb27cc2 by diff_low and diff_high.
struct DifferenceEstimator : LogProbsEstimator<DifferenceEstimator> {
  static constexpr Estimator kEstimator = Estimator::kDifference;
  static constexpr EstimatorInfo kInfo = {
      "difference", kEstimatesDivergence | kEstimatorIsSigned};

  COUNTERWEIGHT_HD static double statistic(double numerator,
                                           double denominator) {
    return exp64(numerator) - exp64(denominator);
  }
};

// exp(-l) - 1 + l, K3 of the exchanged ratio: kl_k3 of AReaL @cbff54d6.
struct ReverseK3Estimator : LogProbsEstimator<ReverseK3Estimator> {
  static constexpr Estimator kEstimator = Estimator::kReverseK3;
  static constexpr EstimatorInfo kInfo = {"reverse_k3", kEstimatesDivergence};

  // The terms' difference is rounded to 1e-16 l, far below l^2 / 2.
  COUNTERWEIGHT_HD static double statistic(double numerator,
                                           double denominator) {
    const double l = numerator - denominator;
    return expm1_64(-l) + l;
  }
};

template <class... E>
struct EstimatorList {
  static constexpr size_t kSize = sizeof...(E);
  static constexpr EstimatorInfo kInfos[] = {E::kInfo...};

  static constexpr bool IsInOrder() {
    uint32_t next = 0;
    return ((static_cast<uint32_t>(E::kEstimator) == next++) && ...);
  }
};

using Estimators = EstimatorList<RatioEstimator, K2Estimator, K3Estimator,
                                 BinaryKlEstimator, TotalVariationEstimator,
                                 DifferenceEstimator, ReverseK3Estimator>;
static_assert(Estimators::IsInOrder());
static_assert(static_cast<size_t>(Estimator::kLast) + 1 == Estimators::kSize,
              "an estimator without a struct");

constexpr EstimatorInfo InfoOf(Estimator estimator) {
  return Estimators::kInfos[static_cast<size_t>(estimator)];
}

// Walks of Lanes are compiled for E.
template <class Lanes, class E>
inline constexpr bool MayEstimate = Lanes::may(kNeedDivergences) ||
                                    !E::kInfo.Has(kEstimatesDivergence);

template <class Lanes, class F, class First, class... Rest>
COUNTERWEIGHT_HD void visit_estimator(EstimatorList<First, Rest...>,
                                      Estimator estimator, F f) {
  constexpr bool kMay = MayEstimate<Lanes, First>;
  constexpr bool kHasMore = (MayEstimate<Lanes, Rest> || ... || false);
  if constexpr (kMay) {
    if (!kHasMore || estimator == First::kEstimator) {
      f(First{});
      return;
    }
  }
  if constexpr (kHasMore) {
    visit_estimator<Lanes>(EstimatorList<Rest...>{}, estimator, f);
  }
}

// f(E{}) for the struct E of `estimator`. REQUIRES: a walk of Lanes has it.
template <class Lanes, class F>
COUNTERWEIGHT_HD void with_estimator(Estimator estimator, F f) {
  visit_estimator<Lanes>(Estimators{}, estimator, f);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_RULES_ESTIMATORS_H_
