// Sums of the parts of a batch, by rows.
#ifndef COUNTERWEIGHT_KERNELS_CPU_SUM_PARTS_H_
#define COUNTERWEIGHT_KERNELS_CPU_SUM_PARTS_H_

#include <optional>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace counterweight::kernels {

// Implements Corrector::SumParts: one pass over the batch, part by part.
std::optional<CorrectResult> SumRowParts(
    const IsaKernels& kernels, ThreadPool* pool, const CorrectionSpec& spec,
    const Batch& batch, const RowParts& parts, const StopRequest& stop,
    std::vector<PartialSums>* sums);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_SUM_PARTS_H_
