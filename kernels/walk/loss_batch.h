// What a loss must know of the whole batch before its tokens are walked.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_BATCH_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_BATCH_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/walk/plan.h"
#include "kernels/walk/record.h"

namespace counterweight::kernels {

// Walks that a backend makes ahead of the one with the loss. Contexts hold host
// pointers.
class LossBackend {
 public:
  virtual ~LossBackend() = default;

  // Statistics alone, folded over the batch; row_tokens [num_sequences] is what
  // each row counts in response_mask. False: there is no answer.
  virtual bool Statistics(const LossContext& context, double* row_tokens,
                          RowRecord* total) = 0;

  // [num_positions] LossContext::selection_keys. False: there is no answer.
  virtual bool SelectionKeys(const LossContext& context, float* keys) = 0;
};

// A context and the arrays that it points to.
struct LossBatch {
  LossContext context = kNoLossContext;
  // LossSums::count.
  double count = 0.0;
  std::vector<double> row_factors;
  std::vector<uint8_t> selected;
};

// Bytes that PrepareLoss allocates at most.
int64_t LossScratchBytes(const Plan& plan, const Batch& batch);

// REQUIRES: plan.loss.active. False: a walk gave no answer.
bool PrepareLoss(const Plan& plan, const Batch& batch, LossBackend* backend,
                 LossBatch* out);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_BATCH_H_
