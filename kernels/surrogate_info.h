// Facts about a surrogate that do not depend on a batch. Each surrogate's
// struct in surrogates/ has its own as kInfo; names, validation, plans, the
// codec, METHODS.md and the tests' lists derive from them.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATE_INFO_H_
#define COUNTERWEIGHT_KERNELS_SURROGATE_INFO_H_

#include <cstdint>

#include "kernels/loss_parameters.h"
#include "kernels/loss_spec.h"

namespace counterweight::kernels {

enum SurrogateTrait : uint32_t {
  kTraitRatio = 1u << 0,       // V is a function of l or r.
  kTraitLogRatio = 1u << 1,    // V reads l itself, so that l has no clamp.
  kTraitRatioSlope = 1u << 2,  // The gradient reaches r, which a row can share.
  kTraitLevels = 1u << 3,      // r can be a whole row's, see LossLevel.
  // V is from LossRow::value: the struct has set_row() and aggregate().
  kTraitRow = 1u << 4,
  // With kTraitRow, [0] is for A >= 0 and [1] for A < 0.
  kTraitRowBySign = 1u << 5,
  // r is the row's as well; set_row() makes V from it.
  kTraitRowRatio = 1u << 6,
  // set_row() reads the sum of the row's advantages.
  kTraitRowAdvantage = 1u << 7,
  // Tokens are chosen from the whole batch: the struct has selection_key().
  kTraitSelection = 1u << 8,
  // Those with a key of 1 at random; without it, those with the largest keys.
  kTraitSelectsAtRandom = 1u << 9,
  kTraitDivergence = 1u << 10,     // Clipped by a divergence of probabilities.
  kTraitPadding = 1u << 11,        // Has flags at masked positions.
  kTraitCountsPadding = 1u << 12,  // LossSpec::counts_padding is possible.
  kTraitNoCorrection = 1u << 13,   // r penalizes drift and does not correct it.
  kTraitLowCap = 1u << 14,         // clip_high may be negative: a cap below 1.
  // The only LossSpec::over.
  kTraitOverOriginal = 1u << 15,
  kTraitOverKept = 1u << 16,
  // Walks that are compiled without kNeedSurrogates have it.
  kTraitCommon = 1u << 17,
  kTraitExcess = 1u << 18,  // V reads r - 1.
};

struct SurrogateInfo {
  const char* name;
  uint32_t traits = 0;      // SurrogateTrait
  uint32_t parameters = 0;  // bits of LossParameter

  constexpr bool Has(SurrogateTrait trait) const {
    return (traits & trait) != 0;
  }
  constexpr bool Reads(LossParameter parameter) const {
    return (parameters & Bit(parameter)) != 0;
  }
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATE_INFO_H_
