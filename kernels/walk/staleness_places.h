// Ranges of staleness by number.
#ifndef COUNTERWEIGHT_KERNELS_WALK_STALENESS_PLACES_H_
#define COUNTERWEIGHT_KERNELS_WALK_STALENESS_PLACES_H_

#include <cstdint>

#include "kernels/staleness_sums.h"

namespace counterweight::kernels {

// Indices by staleness, the last entry for all above.
struct StalenessPlaces {
  static constexpr int64_t kLast = kStalenessEdges[kNumStalenessEdges - 1] + 1;
  uint8_t bucket[kLast + 1] = {};
  uint8_t histogram[kLast + 1] = {};

  constexpr int bucket_of(int64_t staleness) const {
    return bucket[staleness < kLast ? staleness : kLast];
  }
  constexpr int histogram_of(int64_t staleness) const {
    return histogram[staleness < kLast ? staleness : kLast];
  }
};

constexpr StalenessPlaces MakeStalenessPlaces() {
  StalenessPlaces places;
  for (int64_t s = 0; s <= StalenessPlaces::kLast; ++s) {
    while (kStalenessBuckets[places.bucket[s]].last < s) ++places.bucket[s];
    while (places.histogram[s] < kNumStalenessEdges &&
           kStalenessEdges[places.histogram[s]] < s) {
      ++places.histogram[s];
    }
    if (s == StalenessPlaces::kLast) break;
    places.bucket[s + 1] = places.bucket[s];
    places.histogram[s + 1] = places.histogram[s];
  }
  return places;
}
inline constexpr StalenessPlaces kStalenessPlaces = MakeStalenessPlaces();

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_STALENESS_PLACES_H_
