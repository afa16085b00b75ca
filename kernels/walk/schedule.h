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
  // Outputs and loss in one walk, where only the gradient depends on a sum of
  // the row. For backends with RowWalk::shortens.
  kRowRatioLoss,         // RowRatioLoss
  kOutputsThenGradient,  // slopes in the gradient's place, then the gradient
};

// The rows that a step is for; the others are done or have steps of their own.
enum class StepRows : uint8_t {
  kAll,
  kFired,  // a sequence rule fired
  kClean,  // all numbers are finite
  kOneSegment,
};

struct Step {
  StepKind kind;
  // kSettle: all decisions are known after it.
  bool is_last = false;
  // kOutputs: adds up the loss and writes nothing.
  bool loss_only = false;
  StepRows rows = StepRows::kAll;
  // The number of steps after it that such rows leave out.
  int32_t replaces = 0;
};

enum class Purpose : uint8_t {
  kStatistics,     // statistics and decisions
  kSelectionKeys,  // and LossContext::selection_keys
  kOutputs,        // and outputs, the loss
};

// A POD, which code for each instruction set reads.
struct Schedule {
  // Each rule and the weight can require one more pass.
  static constexpr int kMaxSteps = 2 * (kMaxRules + 3) + 6;

  Step steps[kMaxSteps];
  int32_t num_steps;

  const Step* begin() const { return steps; }
  const Step* end() const { return steps + num_steps; }
};

// How a backend walks a row.
struct RowWalk {
  bool any_order;  // its segments; else one after another, or there is one
  bool fuses;      // it has kBoth
  // One thread walks the whole row and writes its gradient: it has
  // kRowRatioLoss and kOutputsThenGradient.
  bool shortens = false;
};

Schedule ScheduleOf(const Plan& plan, Purpose purpose, const RowWalk& walk);

// A loss counts by the mask alone, so that rows can be walked as they arrive:
// no tokens are dropped, and no other sum of the batch enters.
bool MaskTellsLoss(const Plan& plan);

// Weights are divided by the batch's mean when all rows are done. A loss takes
// normalized weights, so that they are written as such.
bool DividesWeights(const Plan& plan, const Outputs& outputs);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SCHEDULE_H_
