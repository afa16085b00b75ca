// Conversion from columns to the names of sums.h.
#ifndef COUNTERWEIGHT_KERNELS_WALK_BATCH_SUMS_H_
#define COUNTERWEIGHT_KERNELS_WALK_BATCH_SUMS_H_

#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/sums.h"
#include "kernels/walk/partial_layout.h"

namespace counterweight::kernels {

// The divisor of the weights: their batch mean, or 1 (see WeightSpec).
double Normalizer(const Plan& plan, int64_t num_sequences,
                  const RowRecord& total);

// `folded` is the fold of all rows. What is NaN there has the same bits in the
// sums, whatever processor made it.
BatchSums MakeBatchSums(const Plan& plan, int64_t num_sequences,
                        const RowRecord& folded);

// The sums and, where the policy is REJECT, the first non-finite number.
// `partial` is null unless CorrectResult::partial is wanted.
CorrectResult MakeResult(const Plan& plan, const Batch& batch,
                         const RowRecord& total, const PartialBins* partial);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_BATCH_SUMS_H_
