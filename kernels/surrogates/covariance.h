// Surrogates that treat tokens of a large covariance of log-prob and advantage
// apart (Cui et al. 2025, arXiv:2505.22617). Words as in clipped.h.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_COVARIANCE_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_COVARIANCE_H_

#include "kernels/surrogate_info.h"
#include "kernels/surrogates/clipped.h"
#include "kernels/surrogates/surrogate.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// A token that may be selected.
struct SelectionInput {
  double covariance;
  float r;
  float a;
  bool counts;  // of LossSpec::over
};

struct KlCov {
  static constexpr Surrogate kSurrogate = Surrogate::kKlCov;
  static constexpr SurrogateInfo kInfo = {
      "kl_cov", kTraitRatio | kTraitLogRatio | kTraitSelection,
      Bits(LossParameter::kCovarianceFraction,
           LossParameter::kCovarianceKlWeight)};

  // The covariance; -infinity for tokens that cannot be selected.
  COUNTERWEIGHT_HD static float selection_key(const LossPlan& /*loss*/,
                                              const SelectionInput& x) {
    const float narrow = static_cast<float>(x.covariance);
    return x.counts && narrow == narrow ? narrow : -__builtin_inff();
  }

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec zero{};
    const Vec weight =
        x.prepared * static_cast<float>(loss.spec.covariance_kl_weight);
    const Vec below_or_zero = x.l < 0.0f ? -weight : zero;
    SurrogateVec out{};
    out.value = weight * absolute(x.l) + cost(x.a, x.r);
    out.slope = x.l > 0.0f ? weight : below_or_zero;
    out.full_ratio_slope = -x.a;
    out.full_slope = out.slope;
    return out;
  }
};

// PPO; selected tokens contribute neither loss nor gradient.
struct ClipCov {
  static constexpr Surrogate kSurrogate = Surrogate::kClipCov;
  static constexpr SurrogateInfo kInfo = {
      "clip_cov", kTraitRatio | kTraitSelection | kTraitSelectsAtRandom,
      Bits(LossParameter::kClipLow, LossParameter::kClipHigh,
           LossParameter::kCovarianceFraction, LossParameter::kCovarianceLower,
           LossParameter::kCovarianceUpper)};

  // 1 for tokens that PPO does not clip and that have a covariance between the
  // bounds, else 0.
  COUNTERWEIGHT_HD static float selection_key(const LossPlan& loss,
                                              const SelectionInput& x) {
    const bool clipped = (x.r > loss.ratio_high && x.a > 0.0f) ||
                         (x.r < loss.ratio_low && x.a < 0.0f);
    const bool is_between = x.covariance > loss.spec.covariance_lower &&
                            x.covariance < loss.spec.covariance_upper;
    return x.counts && !clipped && is_between ? 1.0f : 0.0f;
  }

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec zero{};
    SurrogateVec out = PpoClip::value(loss, x);
    out.value = x.prepared != 0.0f ? zero : out.value;
    out.stopped = x.prepared != 0.0f ? splat(1.0f) : out.stopped;
    out.clipped = x.prepared;
    return out;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_COVARIANCE_H_
