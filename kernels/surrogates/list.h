// All surrogates. To add one: its struct in one of these headers, its name in
// Surrogates in the order of the enum (see CONTRIBUTING.md for the rest).
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_LIST_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_LIST_H_

#include <cstddef>
#include <cstdint>

#include "kernels/plan/needs.h"
#include "kernels/surrogate_info.h"
#include "kernels/surrogates/clipped.h"
#include "kernels/surrogates/covariance.h"
#include "kernels/surrogates/divergence.h"
#include "kernels/surrogates/sequence.h"
#include "kernels/surrogates/unclipped.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class... S>
struct SurrogateList {
  static constexpr size_t kSize = sizeof...(S);
  static constexpr SurrogateInfo kInfos[] = {S::kInfo...};

  static constexpr bool IsInOrder() {
    uint32_t next = 1;  // after kNone
    return ((static_cast<uint32_t>(S::kSurrogate) == next++) && ...);
  }
};

using Surrogates = SurrogateList<PpoClip, Cispo, Sapo, Reinforce, Dro, DppoTv,
                                 DppoKl, GeoMean, Vespo, RolloutIs, KlCov,
                                 ClipCov, CrossEntropy, ImportanceSampling>;
static_assert(Surrogates::IsInOrder());

// kNone included.
inline constexpr int kNumSurrogates = static_cast<int>(Surrogates::kSize) + 1;
static_assert(static_cast<int>(Surrogate::kLast) + 1 == kNumSurrogates,
              "a surrogate without a struct");

constexpr SurrogateInfo InfoOf(Surrogate surrogate) {
  if (surrogate == Surrogate::kNone) return {"none"};
  return Surrogates::kInfos[static_cast<size_t>(surrogate) - 1];
}

// The need of a plan with the surrogate.
constexpr Need NeedOf(const SurrogateInfo& info) {
  if (!info.Has(kTraitRatio)) return kNeedReinforce;
  return info.Has(kTraitCommon) ? kNeedLoss : kNeedSurrogates;
}

// Any surrogate, in any walk. kIsWhole: with_surrogate() is only called for
// surrogates that the filter has, so that the last one needs no comparison.
struct AnySurrogate {
  static constexpr bool kIsWhole = true;
  template <class S>
  static constexpr bool kMay = true;
};
// Those that the walks of Lanes are compiled for.
template <class Lanes>
struct SurrogateOfWalk {
  static constexpr bool kIsWhole = true;
  template <class S>
  static constexpr bool kMay = Lanes::may(NeedOf(S::kInfo));
};
// Those of Filter with one of the traits.
template <class Filter, uint32_t traits>
struct SurrogateWith {
  static constexpr bool kIsWhole = false;
  template <class S>
  static constexpr bool kMay = Filter::template kMay<S> &&
                               (S::kInfo.traits & traits) != 0;
};

template <class Filter, class F, class First, class... Rest>
COUNTERWEIGHT_HD void visit_surrogate(SurrogateList<First, Rest...>,
                                      Surrogate surrogate, F f) {
  constexpr bool kHasMore = (Filter::template kMay<Rest> || ... || false);
  if constexpr (Filter::template kMay<First>) {
    const bool is_only = Filter::kIsWhole && !kHasMore;
    if (is_only || surrogate == First::kSurrogate) {
      f(First{});
      return;
    }
  }
  if constexpr (sizeof...(Rest) > 0) {
    visit_surrogate<Filter>(SurrogateList<Rest...>{}, surrogate, f);
  }
}

// f(S{}) for the struct S of `surrogate`, if Filter has it. REQUIRES: it has,
// if Filter::kIsWhole; not kNone.
template <class Filter, class F>
COUNTERWEIGHT_HD void with_surrogate(Surrogate surrogate, F f) {
  visit_surrogate<Filter>(Surrogates{}, surrogate, f);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_LIST_H_
