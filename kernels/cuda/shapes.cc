#include "kernels/cuda/shapes.h"

namespace counterweight::kernels {
namespace {

bool Fits(const Plan& plan, const Shape& shape) {
  const uint32_t features = FeaturesOf(plan);
  if ((features & ~shape.features) != 0) return false;
  if (SourceOf(plan, SourceUse::kDrift) != shape.drift) return false;
  const bool corrects =
      plan.weight.spec.level != Level::kNone || plan.spec.num_rules > 0;
  if (corrects && SourceOf(plan, SourceUse::kCorrection) != shape.correction) {
    return false;
  }
  if (!plan.loss.active) return true;
  return SourceOf(plan, SourceUse::kLoss) == shape.loss &&
         SourceOf(plan, SourceUse::kLossMetrics) == shape.loss;
}

}  // namespace

int ShapeOf(const Plan& plan) {
  for (int i = 0; i < kNumShapes; ++i) {
    if (Fits(plan, kShapes[i])) return i;
  }
  return kAnyPlan;
}

}  // namespace counterweight::kernels
