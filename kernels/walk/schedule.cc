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

  void AddOutputs(const Plan& plan, bool fired_rows_only) {
    if (plan.loss.active && plan.loss.needs_row_gradient) {
      Add({.kind = StepKind::kOutputs,
           .loss_only = true,
           .fired_rows_only = fired_rows_only});
      Add({.kind = StepKind::kSettleLoss, .fired_rows_only = fired_rows_only});
    }
    Add({.kind = StepKind::kOutputs, .fired_rows_only = fired_rows_only});
    if (plan.loss.active) {
      Add({.kind = StepKind::kSettleLoss, .fired_rows_only = fired_rows_only});
    }
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  Schedule schedule_{};
};

}  // namespace

Schedule ScheduleOf(const Plan& plan, Purpose purpose, bool any_order,
                    bool fuses) {
  Builder builder;
  const bool single_pass =
      any_order ? plan.single_pass : plan.in_order_single_pass;
  const bool speculates =
      any_order ? plan.speculates : plan.in_order_speculates;
  if (purpose == Purpose::kOutputs && fuses && (single_pass || speculates)) {
    builder.Add({StepKind::kInitialStates});
    builder.Add({StepKind::kBoth});
    builder.Add({.kind = StepKind::kSettle, .is_last = true});
    if (speculates) builder.AddOutputs(plan, /*fired_rows_only=*/true);
    return builder.schedule();
  }
  builder.AddDecisions(any_order ? plan.passes : plan.in_order_passes);
  if (purpose == Purpose::kSelectionKeys) builder.Add({StepKind::kOutputs});
  if (purpose == Purpose::kOutputs) {
    builder.AddOutputs(plan, /*fired_rows_only=*/false);
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
