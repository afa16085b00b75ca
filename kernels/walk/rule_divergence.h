// Divergences of two probabilities of one token, p = exp(denominator) and q =
// exp(numerator) of a rule's ratio source, as OpenRLHF 0.11.2 gates by them
// (openrlhf/models/loss.py).
#ifndef COUNTERWEIGHT_KERNELS_WALK_RULE_DIVERGENCE_H_
#define COUNTERWEIGHT_KERNELS_WALK_RULE_DIVERGENCE_H_

#include "kernels/math/exp.h"
#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct RuleDivergence {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;

  // Into s.statistic. Masked positions have p = q, and 0.
  COUNTERWEIGHT_HD static void run(RatioSource source, bool total_variation,
                                   State& s) {
    const TileOf<Lanes>& num = s.input[numerator(source)];
    const TileOf<Lanes>& den = s.input[denominator(source)];
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        const Probability p = bounded(static_cast<double>(den.at[k][i]));
        const Probability q = bounded(static_cast<double>(num.at[k][i]));
        const double x =
            total_variation ? __builtin_fabs(p.of - q.of) : binary_kl(p, q);
        s.statistic.at[k][i] = static_cast<float>(x);
      }
    }
  }

 private:
  struct Probability {
    double of;
    double rest;  // 1 - of, accurate where `of` is near 1
  };

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

  COUNTERWEIGHT_HD static double binary_kl(const Probability& p,
                                           const Probability& q) {
    return p.of * log64(p.of / q.of) + p.rest * log64(p.rest / q.rest);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_RULE_DIVERGENCE_H_
