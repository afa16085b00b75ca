// What each surrogate is, in one place: its name, what it needs, and which of
// LossSpec's numbers it reads. Names, validation, plans, the codec and the
// tests' lists derive from it; a surrogate without a case does not compile
// where warnings are errors. Formulas stand in walk/surrogates.h.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATE_INFO_H_
#define COUNTERWEIGHT_KERNELS_SURROGATE_INFO_H_

#include <cstdint>

#include "kernels/loss_spec.h"

namespace counterweight::kernels {

enum SurrogateTrait : uint32_t {
  kTraitRatio = 1u << 0,       // V is a function of l or r.
  kTraitLogRatio = 1u << 1,    // V reads l itself, so that l has no clamp.
  kTraitRatioSlope = 1u << 2,  // The gradient reaches r, which a row can share.
  kTraitLevels = 1u << 3,      // r can be a whole row's, see LossLevel.
  kTraitRow = 1u << 4,         // V is one number for a row.
  kTraitSelection = 1u << 5,   // Tokens are chosen from the whole batch.
  kTraitDivergence = 1u << 6,  // Clipped by a divergence of two probabilities.
  kTraitPadding = 1u << 7,     // LossSpec::counts_padding is possible.
  kTraitNoCorrection = 1u << 8,  // r penalizes drift and does not correct it.
  kTraitLowCap = 1u << 9,        // clip_high may be negative: a cap below 1.
  // The only LossSpec::over.
  kTraitOverOriginal = 1u << 10,
  kTraitOverKept = 1u << 11,
};

// Groups of LossSpec's numbers.
enum SurrogateNumbers : uint32_t {
  kNumbersClip = 1u << 0,  // clip_low, clip_high
  kNumbersDualClip = 1u << 1,
  kNumbersRatioCap = 1u << 2,
  kNumbersLogRatioClamp = 1u << 3,
  kNumbersTau = 1u << 4,
  kNumbersShape = 1u << 5,  // k and lambda
  kNumbersBeta = 1u << 6,
  kNumbersFraction = 1u << 7,  // covariance_fraction, seed
  kNumbersBounds = 1u << 8,    // covariance_lower, covariance_upper
  kNumbersKlWeight = 1u << 9,  // covariance_kl_weight
};

struct SurrogateInfo {
  const char* name;
  uint32_t traits;   // SurrogateTrait
  uint32_t numbers;  // SurrogateNumbers

  constexpr bool Has(SurrogateTrait trait) const {
    return (traits & trait) != 0;
  }
  constexpr bool Reads(SurrogateNumbers group) const {
    return (numbers & group) != 0;
  }
};

constexpr SurrogateInfo InfoOf(Surrogate surrogate) {
  constexpr uint32_t kDppo =
      kNumbersClip | kNumbersRatioCap | kNumbersLogRatioClamp;
  switch (surrogate) {
    case Surrogate::kNone:
      return {"none", 0, 0};
    case Surrogate::kPpoClip:
      return {"ppo_clip",
              kTraitRatio | kTraitRatioSlope | kTraitLevels | kTraitPadding,
              kNumbersClip | kNumbersDualClip | kNumbersRatioCap |
                  kNumbersLogRatioClamp};
    case Surrogate::kCispo:
      return {"cispo", kTraitRatio | kTraitLevels | kTraitLowCap,
              kNumbersClip | kNumbersLogRatioClamp};
    case Surrogate::kSapo:
      return {"sapo", kTraitRatio | kTraitRatioSlope | kTraitLevels,
              kNumbersTau | kNumbersLogRatioClamp};
    case Surrogate::kReinforce:
      return {"reinforce", 0, 0};
    case Surrogate::kDro:
      return {"dro", kTraitRatio | kTraitLogRatio | kTraitNoCorrection,
              kNumbersBeta};
    case Surrogate::kDppoTv:
      return {"dppo_tv", kTraitRatio | kTraitDivergence, kDppo};
    case Surrogate::kDppoKl:
      return {"dppo_kl", kTraitRatio | kTraitDivergence, kDppo};
    case Surrogate::kGeoMean:
      return {"geo_mean",
              kTraitRatio | kTraitLogRatio | kTraitRow | kTraitOverKept,
              kNumbersClip};
    case Surrogate::kVespo:
      return {"vespo",
              kTraitRatio | kTraitLogRatio | kTraitRow | kTraitOverOriginal,
              kNumbersShape};
    case Surrogate::kRolloutIs:
      return {"rollout_is", kTraitRatio, kNumbersClip | kNumbersLogRatioClamp};
    case Surrogate::kKlCov:
      return {"kl_cov", kTraitRatio | kTraitLogRatio | kTraitSelection,
              kNumbersFraction | kNumbersKlWeight};
    case Surrogate::kClipCov:
      return {"clip_cov", kTraitRatio | kTraitSelection,
              kNumbersClip | kNumbersFraction | kNumbersBounds};
    case Surrogate::kCrossEntropy:
      return {"cross_entropy", 0, 0};
    case Surrogate::kImportanceSampling:
      return {"importance_sampling",
              kTraitRatio | kTraitRatioSlope | kTraitLevels,
              kNumbersLogRatioClamp};
  }
  return {nullptr, 0, 0};
}

// kNone included.
constexpr int CountSurrogates() {
  int count = 0;
  while (InfoOf(static_cast<Surrogate>(count)).name != nullptr) ++count;
  return count;
}
inline constexpr int kNumSurrogates = CountSurrogates();

constexpr const char* Name(Surrogate surrogate) {
  return InfoOf(surrogate).name;
}
constexpr bool HasRatio(Surrogate surrogate) {
  return InfoOf(surrogate).Has(kTraitRatio);
}

// VESPO's weights are at least this, and their logarithms, and its own log
// ratio, lie within these (TRL's VESPO).
inline constexpr double kVespoFloor = 1e-8;
inline constexpr double kVespoLogFloor =
    -18.420680743952367;  // log of the floor
inline constexpr double kVespoLogCeiling = 20.0;

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATE_INFO_H_
