// Pairwise folding by index, streamed: items 0, 1, 2, ... are pushed in order
// and only one partial per level is kept. The tree is the one that pairs
// neighbours level by level, an odd last one going up alone.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PAIRWISE_H_
#define COUNTERWEIGHT_KERNELS_WALK_PAIRWISE_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/walk/record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// kLevels: up to 2^(kLevels - 1) items. Trivial, so that it may lie in raw
// memory: reset() comes first.
template <class Record, int kLevels>
class PairwiseFold {
 public:
  // The place to write the next item, valid until push().
  COUNTERWEIGHT_HD Record& next() { return partial_[depth_]; }

  COUNTERWEIGHT_HD void push(const Plan& plan) {
    ++depth_;
    ++count_;
    // Bit k of the count clears when a tree of 2^k items is complete.
    for (uint64_t c = count_; (c & 1u) == 0; c >>= 1) {
      fold(plan, partial_[depth_ - 2], partial_[depth_ - 1]);
      --depth_;
    }
  }

  // The fold of everything pushed. REQUIRES: at least one push.
  COUNTERWEIGHT_HD Record& finish(const Plan& plan) {
    while (depth_ > 1) {
      fold(plan, partial_[depth_ - 2], partial_[depth_ - 1]);
      --depth_;
    }
    return partial_[0];
  }

  COUNTERWEIGHT_HD void reset() {
    depth_ = 0;
    count_ = 0;
  }

 private:
  int depth_;
  uint64_t count_;
  Record partial_[kLevels + 1];
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PAIRWISE_H_
