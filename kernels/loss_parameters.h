// The numbers that surrogates read, one row each: member of LossSpec, name,
// legal range. The codec's fields, validation and METHODS.md derive from it.
#ifndef COUNTERWEIGHT_KERNELS_LOSS_PARAMETERS_H_
#define COUNTERWEIGHT_KERNELS_LOSS_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "kernels/loss_spec.h"
#include "kernels/spec_violation.h"

namespace counterweight::kernels {

enum class LossParameter : uint8_t {
  kClipLow,
  kClipHigh,
  kDualClip,
  kRatioCap,
  kLogRatioClamp,
  kTauPositive,
  kTauNegative,
  kKPositive,
  kLambdaPositive,
  kKNegative,
  kLambdaNegative,
  kBeta,
  kCovarianceFraction,
  kCovarianceLower,
  kCovarianceUpper,
  kCovarianceKlWeight,
};

constexpr uint32_t Bit(LossParameter parameter) {
  return uint32_t{1} << static_cast<uint32_t>(parameter);
}
template <class... Parameters>
constexpr uint32_t Bits(Parameters... parameters) {
  return (Bit(parameters) | ... | 0u);
}

// The member of the spec in violations.
constexpr SpecField FieldOf(LossParameter parameter) {
  return static_cast<SpecField>(static_cast<int>(SpecField::kLossParameters) +
                                static_cast<int>(parameter));
}

// A range of legal numbers, ends included unless `open`.
struct NumberRange {
  double low;
  double high;
  bool open_low = false;
  bool open_high = false;

  // False for NaN.
  constexpr bool Contains(double x) const {
    return (open_low ? x > low : x >= low) &&
           (open_high ? x < high : x <= high);
  }
};

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();
inline constexpr NumberRange kAtLeastZero = {0.0, kInfinite};
inline constexpr NumberRange kAboveZero = {0.0, kInfinite, true};
inline constexpr NumberRange kFiniteAtLeastZero = {0.0, kInfinite, false, true};
inline constexpr NumberRange kFiniteAboveZero = {0.0, kInfinite, true, true};
inline constexpr NumberRange kFinite = {-kInfinite, kInfinite, true, true};

struct LossParameterInfo {
  LossParameter parameter;
  const char* name;  // as in the contract's PolicyLoss
  // Its default in LossSpec{}; infinity: absent. Absent numbers are legal for
  // every surrogate.
  double LossSpec::*member;
  NumberRange range;
  // Completes a sentence that begins with the name.
  const char* reason;
  // A spelled-out loss must give it.
  bool is_required = false;
};

// In the order of LossParameter. kLogRatioClamp covers both ends of the clamp,
// the lower one its negative; specs of the kernels may have others.
inline constexpr LossParameterInfo kLossParameters[] = {
    {LossParameter::kClipLow, "clip_low", &LossSpec::clip_low, kAtLeastZero,
     "must be >= 0", true},
    {LossParameter::kClipHigh, "clip_high", &LossSpec::clip_high, kAtLeastZero,
     "must be >= 0", true},
    {LossParameter::kDualClip,
     "dual_clip",
     &LossSpec::dual_clip,
     {1.0, kInfinite, true},
     "must be > 1, or absent for none"},
    {LossParameter::kRatioCap, "ratio_cap", &LossSpec::ratio_cap, kAboveZero,
     "must be > 0, or absent for none"},
    {LossParameter::kLogRatioClamp, "log_ratio_clamp",
     &LossSpec::log_ratio_upper, kAboveZero, "must be > 0, or absent for none"},
    {LossParameter::kTauPositive, "tau_positive", &LossSpec::tau_positive,
     kFiniteAboveZero, "must be a finite number > 0"},
    {LossParameter::kTauNegative, "tau_negative", &LossSpec::tau_negative,
     kFiniteAboveZero, "must be a finite number > 0"},
    {LossParameter::kKPositive, "k_positive", &LossSpec::k_positive, kFinite,
     "must be a finite number"},
    {LossParameter::kLambdaPositive, "lambda_positive",
     &LossSpec::lambda_positive, kFinite, "must be a finite number"},
    {LossParameter::kKNegative, "k_negative", &LossSpec::k_negative, kFinite,
     "must be a finite number"},
    {LossParameter::kLambdaNegative, "lambda_negative",
     &LossSpec::lambda_negative, kFinite, "must be a finite number"},
    {LossParameter::kBeta, "beta", &LossSpec::beta, kFiniteAboveZero,
     "DRO needs a finite beta > 0"},
    {LossParameter::kCovarianceFraction,
     "covariance_fraction",
     &LossSpec::covariance_fraction,
     {0.0, 1.0, true},
     "must be in (0, 1]"},
    {LossParameter::kCovarianceLower,
     "covariance_lower",
     &LossSpec::covariance_lower,
     {-kInfinite, kInfinite},
     "must be <= covariance_upper"},
    {LossParameter::kCovarianceUpper,
     "covariance_upper",
     &LossSpec::covariance_upper,
     {-kInfinite, kInfinite},
     "must be >= covariance_lower"},
    {LossParameter::kCovarianceKlWeight, "covariance_kl_weight",
     &LossSpec::covariance_kl_weight, kFiniteAtLeastZero,
     "must be a finite number >= 0"},
};
inline constexpr int kNumLossParameters =
    static_cast<int>(std::size(kLossParameters));

constexpr bool LossParametersAreInOrder() {
  for (size_t i = 0; i < std::size(kLossParameters); ++i) {
    if (static_cast<size_t>(kLossParameters[i].parameter) != i) return false;
  }
  return true;
}
static_assert(LossParametersAreInOrder());
static_assert(kNumLossParameters <= 32);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_LOSS_PARAMETERS_H_
