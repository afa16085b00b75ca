// The tokens that KL_COV and CLIP_COV choose from a batch. The same seed makes
// the same choice, whatever computed the keys.
#ifndef COUNTERWEIGHT_KERNELS_WALK_SELECTION_H_
#define COUNTERWEIGHT_KERNELS_WALK_SELECTION_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/loss_spec.h"

namespace counterweight::kernels {

// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", 2011): 64 bits that belong to one position of one row.
uint64_t PhiloxRank(uint64_t seed, int64_t row, int64_t position);

// [num_positions], 1 = selected; keys as LossContext::selection_keys. Of
// `tokens` tokens max(1, floor(covariance_fraction * tokens)) are selected, or
// all candidates if there are fewer: for KL_COV the largest keys, equal ones by
// row, then position; for CLIP_COV those of the smallest PhiloxRank.
std::vector<uint8_t> SelectTokens(const LossSpec& loss, const Batch& batch,
                                  const std::vector<float>& keys,
                                  int64_t tokens);

// Bytes that a selection among so many positions allocates at most, its keys
// included.
int64_t SelectionScratchBytes(int64_t positions);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SELECTION_H_
