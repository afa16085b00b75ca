// Surrogates without a clipped ratio. Words as in clipped.h.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_UNCLIPPED_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_UNCLIPPED_H_

#include "kernels/math/exp.h"
#include "kernels/surrogate_info.h"
#include "kernels/surrogates/surrogate.h"
#include "kernels/tile/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// REINFORCE (Williams 1992) and GPG (Chu et al. 2025, arXiv:2504.02546).
struct Reinforce {
  static constexpr Surrogate kSurrogate = Surrogate::kReinforce;
  static constexpr SurrogateInfo kInfo = {"reinforce"};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& /*loss*/,
                                             const SurrogateInput& x) {
    SurrogateVec out{};
    out.value = -x.a * x.lp;
    out.slope = -x.a;
    out.full_slope = -x.a;
    return out;
  }
};

struct CrossEntropy {
  static constexpr Surrogate kSurrogate = Surrogate::kCrossEntropy;
  static constexpr SurrogateInfo kInfo = {"cross_entropy"};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& /*loss*/,
                                             const SurrogateInput& x) {
    SurrogateVec out{};
    out.value = -x.lp;
    out.slope = splat(-1.0f);
    out.full_slope = out.slope;
    return out;
  }
};

struct ImportanceSampling {
  static constexpr Surrogate kSurrogate = Surrogate::kImportanceSampling;
  static constexpr SurrogateInfo kInfo = {
      "importance_sampling", kTraitRatio | kTraitRatioSlope | kTraitLevels,
      Bits(LossParameter::kLogRatioClamp)};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& /*loss*/,
                                             const SurrogateInput& x) {
    SurrogateVec out{};
    out.value = cost(x.a, x.r);
    out.full_ratio_slope = -x.a;
    return out;
  }
};

// DRO (Richemond et al. 2024, arXiv:2405.19107): -(A lp - beta / 2 l^2).
struct Dro {
  static constexpr Surrogate kSurrogate = Surrogate::kDro;
  static constexpr SurrogateInfo kInfo = {
      "dro", kTraitRatio | kTraitLogRatio | kTraitNoCorrection,
      Bits(LossParameter::kBeta)};

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const float beta = static_cast<float>(loss.spec.beta);
    SurrogateVec out{};
    out.value = beta * (0.5f * (x.l * x.l)) - x.a * x.lp;
    out.slope = beta * x.l - x.a;
    out.full_slope = out.slope;
    return out;
  }
};

// SAPO (Gao et al. 2025, arXiv:2511.20347): -A sigmoid(tau (r - 1)) 4 / tau.
struct Sapo {
  static constexpr Surrogate kSurrogate = Surrogate::kSapo;
  static constexpr SurrogateInfo kInfo = {
      "sapo", kTraitExcess | kTraitRatio | kTraitRatioSlope | kTraitLevels,
      Bits(LossParameter::kTauPositive, LossParameter::kTauNegative,
           LossParameter::kLogRatioClamp)};

  // Leaves exp(-abs(tau (r - 1))).
  template <class Lanes>
  COUNTERWEIGHT_HD static void prepare(const LossPlan& loss,
                                       const TileState<Lanes>& s,
                                       LossTiles<Lanes>& t) {
    constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);
    const Vec positive = splat(static_cast<float>(loss.spec.tau_positive));
    const Vec negative = splat(static_cast<float>(loss.spec.tau_negative));
    for_each_group<Lanes::kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec a = s.input[kAdvantages].vec(k, g);
          const Vec tau = a > 0.0f ? positive : negative;
          const Vec distance = absolute(tau * t.excess.vec(k, g));
          t.prepared.set(k, g, exp_terms(-distance).exp);
        });
  }

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec positive =
        splat(static_cast<float>(4.0 / loss.spec.tau_positive));
    const Vec negative =
        splat(static_cast<float>(4.0 / loss.spec.tau_negative));
    const Vec scale = x.a > 0.0f ? positive : negative;
    const Vec decay = x.prepared;
    const Vec larger = 1.0f / (1.0f + decay);
    const Vec smaller = decay / (1.0f + decay);
    const Vec gate = x.excess < 0.0f ? smaller : larger;
    SurrogateVec out{};
    out.value = -x.a * (gate * scale);
    out.full_ratio_slope = -x.a * (4.0f * (larger * smaller));
    return out;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_UNCLIPPED_H_
