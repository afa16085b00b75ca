// The order of walks over the rows of a batch, in one place for all backends. A
// backend executes it for each row, or for many rows at once.
#ifndef COUNTERWEIGHT_KERNELS_WALK_SCHEDULE_H_
#define COUNTERWEIGHT_KERNELS_WALK_SCHEDULE_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/plan/plan.h"

namespace counterweight::kernels {

enum class StepKind : uint8_t {
  kInitialStates,  // row states before the sums are known
  kStatistics,     // a walk that fills the records of the row's segments
  kSettle,         // adds up the records, decides the row's state
  kBoth,           // a walk with statistics and outputs
  kOutputs,        // a walk that writes outputs and adds up the loss
  kSettleLoss,     // adds up the loss, decides what tokens get back of it
};

struct Step {
  StepKind kind;
  // kSettle: all decisions are known after it.
  bool is_last = false;
  // kOutputs: adds up the loss and writes nothing.
  bool loss_only = false;
  // For rows in which a sequence rule fired; the others are done.
  bool fired_rows_only = false;
};

enum class Purpose : uint8_t {
  kStatistics,     // statistics and decisions
  kSelectionKeys,  // and LossContext::selection_keys
  kOutputs,        // and outputs, the loss
};

// A POD, which code for each instruction set reads.
struct Schedule {
  // Each rule and the weight can require one more pass.
  static constexpr int kMaxSteps = 2 * (kMaxRules + 3) + 4;

  Step steps[kMaxSteps];
  int32_t num_steps;

  const Step* begin() const { return steps; }
  const Step* end() const { return steps + num_steps; }
};

// any_order: a row's segments are walked in any order; else one after another,
// or each row has one. fuses: the backend has kBoth.
Schedule ScheduleOf(const Plan& plan, Purpose purpose, bool any_order,
                    bool fuses);

// A loss counts by the mask alone, so that rows can be walked as they arrive:
// no tokens are dropped, and no other sum of the batch enters.
bool MaskTellsLoss(const Plan& plan);

// Weights are divided by the batch's mean when all rows are done. A loss takes
// normalized weights, so that they are written as such.
bool DividesWeights(const Plan& plan, const Outputs& outputs);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SCHEDULE_H_
