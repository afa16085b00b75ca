// Pairwise folding by index, streamed: items 0, 1, 2, ... are pushed in order
// and only one partial per level is kept. The tree is the one that pairs
// neighbours level by level, an odd last one going up alone.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PAIRWISE_H_
#define COUNTERWEIGHT_KERNELS_WALK_PAIRWISE_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// kLevels: up to 2^(kLevels - 1) items. Trivial, so that it may lie in raw
// memory: call reset() first.
template <class Record, int kLevels>
class PairwiseFold {
 public:
  // The place to write the next item, valid until push().
  COUNTERWEIGHT_HD Record& next() { return partial_[depth_]; }

  COUNTERWEIGHT_HD void push(const Plan& plan) {
    ++depth_;
    ++count_;
    // Four at once are read and written less often.
    if (count_ % 4 != 0) return;
    depth_ -= 3;
    Record* const four = &partial_[depth_ - 1];
    if constexpr (requires {
                    fold(plan, four[0], four[1], four[2], four[3]);
                  }) {
      fold(plan, four[0], four[1], four[2], four[3]);
    } else {
      fold(plan, four[0], four[1]);
      fold(plan, four[2], four[3]);
      fold(plan, four[0], four[2]);
    }
    // Bit k of the count clears when a tree of 2^k items is complete.
    for (uint64_t c = count_ / 4; (c & 1u) == 0; c >>= 1) fold_last(plan);
  }

  // The fold of everything pushed. REQUIRES: at least one push.
  COUNTERWEIGHT_HD Record& finish(const Plan& plan) {
    if (count_ % 4 == 3) {
      fold(plan, partial_[depth_ - 3], partial_[depth_ - 2]);
      fold(plan, partial_[depth_ - 3], partial_[depth_ - 1]);
      depth_ -= 2;
    }
    while (depth_ > 1) fold_last(plan);
    return partial_[0];
  }

  COUNTERWEIGHT_HD void reset() {
    depth_ = 0;
    count_ = 0;
  }

 private:
  COUNTERWEIGHT_HD void fold_last(const Plan& plan) {
    fold(plan, partial_[depth_ - 2], partial_[depth_ - 1]);
    --depth_;
  }

  int depth_;
  uint64_t count_;
  // One for each level, and up to four items.
  Record partial_[kLevels + 3];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PAIRWISE_H_
