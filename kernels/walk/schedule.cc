#include "kernels/walk/schedule.h"

namespace counterweight::kernels {
namespace {

class Builder {
 public:
  void Add(const Step& step) { schedule_.steps[schedule_.num_steps++] = step; }

  // Passes over the statistics until every decision is known. Rows of one
  // segment among longer ones repeat passes that they do not need, with the
  // same state as a result.
  void AddDecisions(int passes) {
    Add({StepKind::kInitialStates});
    for (int pass = 1; pass <= passes; ++pass) {
      Add({StepKind::kStatistics});
      Add({.kind = StepKind::kSettle, .is_last = pass == passes});
    }
  }

  void AddOutputs(const Plan& plan, StepRows rows) {
    if ((plan.needs & kNeedRowGradient) != 0) {
      Add({.kind = StepKind::kOutputs, .loss_only = true, .rows = rows});
      Add({.kind = StepKind::kSettleLoss, .rows = rows});
    }
    Add({.kind = StepKind::kOutputs, .rows = rows});
    if (plan.loss.active) Add({.kind = StepKind::kSettleLoss, .rows = rows});
  }

  // Steps that do for some rows what AddOutputs() adds for all.
  void AddShortCuts(const Plan& plan) {
    constexpr int32_t kReplaced = 4;
    if (plan.row_ratio_alone) {
      Add({.kind = StepKind::kRowRatioLoss,
           .rows = StepRows::kClean,
           .replaces = kReplaced + 1});
    }
    Add({.kind = StepKind::kOutputsThenGradient,
         .rows = StepRows::kOneSegment,
         .replaces = kReplaced});
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  Schedule schedule_{};
};

// The gradient alone waits for its row, and the mask is all that it needs
// beside slopes.
bool GradientWaitsAlone(const Plan& plan) {
  const bool over_mask =
      plan.spec.non_finite != NonFinitePolicy::kDrop &&
      (plan.loss.spec.over != TokenSet::kKept || plan.spec.num_rules == 0);
  return (plan.needs & kNeedRowGradient) != 0 && (plan.needs & kNeedKl) == 0 &&
         over_mask;
}

}  // namespace

Schedule ScheduleOf(const Plan& plan, Purpose purpose, const RowWalk& walk) {
  Builder builder;
  const bool single_pass =
      walk.any_order ? plan.single_pass : plan.in_order_single_pass;
  const bool speculates =
      walk.any_order ? plan.speculates : plan.in_order_speculates;
  if (purpose == Purpose::kOutputs && walk.fuses &&
      (single_pass || speculates)) {
    builder.Add({StepKind::kInitialStates});
    builder.Add({StepKind::kBoth});
    builder.Add({.kind = StepKind::kSettle, .is_last = true});
    if (speculates) builder.AddOutputs(plan, StepRows::kFired);
    return builder.schedule();
  }
  builder.AddDecisions(walk.any_order ? plan.passes : plan.in_order_passes);
  if (purpose == Purpose::kSelectionKeys) builder.Add({StepKind::kOutputs});
  if (purpose == Purpose::kOutputs) {
    if (walk.shortens && GradientWaitsAlone(plan)) builder.AddShortCuts(plan);
    builder.AddOutputs(plan, StepRows::kAll);
  }
  return builder.schedule();
}

bool MaskTellsLoss(const Plan& plan) {
  return plan.spec.non_finite != NonFinitePolicy::kDrop && !plan.loss.by_batch;
}

bool DividesWeights(const Plan& plan, const Outputs& outputs) {
  return outputs.weights != nullptr && !plan.loss.active &&
         plan.weight.spec.normalize;
}

}  // namespace counterweight::kernels
