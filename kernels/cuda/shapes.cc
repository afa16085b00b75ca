#include "kernels/cuda/shapes.h"

#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

bool Fits(const Plan& plan, Needs needs, const Shape& shape) {
  if ((needs & ~(shape.needs | kNeedTokens)) != 0) return false;
  if ((shape.always & ~needs) != 0) return false;
  if (plan.spec.num_rules > kMaxShapeRules) return false;
  if (SourceOf(plan, SourceUse::kDrift) != shape.drift) return false;
  const bool corrects =
      plan.weight.spec.level != Level::kNone || plan.spec.num_rules > 0;
  if (corrects && SourceOf(plan, SourceUse::kCorrection) != shape.drift) {
    return false;
  }
  if (!plan.loss.active) return true;
  return SourceOf(plan, SourceUse::kLoss) == shape.loss &&
         SourceOf(plan, SourceUse::kLossMetrics) == shape.loss;
}

}  // namespace

int ShapeOf(const Plan& plan, const Outputs& outputs) {
  Needs needs = plan.needs;
  if (outputs.token_reasons != nullptr || outputs.sequence_reasons != nullptr) {
    needs |= kNeedReasons;
  }
  for (int i = 0; i < kNumShapes; ++i) {
    if (Fits(plan, needs, kShapes[i])) return i;
  }
  return kAnyPlan;
}

}  // namespace counterweight::kernels
