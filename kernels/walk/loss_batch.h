// Whole-batch inputs of a loss, computed before its tokens are walked.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_BATCH_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_BATCH_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {

// Walks that a backend runs before the walk with the loss. Contexts hold host
// pointers.
class LossBackend {
 public:
  virtual ~LossBackend() = default;

  // Runs statistics alone, folded over the batch; row_tokens [num_sequences]
  // gets each row's count in response_mask. Returns false if there is no
  // result.
  virtual bool Statistics(const LossContext& context, double* row_tokens,
                          RowRecord* total) = 0;

  // row_tokens [num_sequences] gets each row's count in response_mask. False:
  // there is no answer.
  virtual bool CountRows(const Batch& batch, double* row_tokens);

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

// REQUIRES: plan.loss.active. Returns false if a walk gave no result.
bool PrepareLoss(const Plan& plan, const Batch& batch, LossBackend* backend,
                 LossBatch* out);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_BATCH_H_
