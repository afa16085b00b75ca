// Makes plans of specs, and answers questions about them that need the lists of
// surrogates and rules.
#ifndef COUNTERWEIGHT_KERNELS_WALK_MAKE_PLAN_H_
#define COUNTERWEIGHT_KERNELS_WALK_MAKE_PLAN_H_

#include <cstdint>

#include "kernels/plan/needs.h"
#include "kernels/plan/plan.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// REQUIRES: Validate(spec) is empty.
Plan MakePlan(const CorrectionSpec& given);
LossPlan MakeLossPlan(const CorrectionSpec& spec);

// Plan::needs of what else `plan` has; without kNeedReasons.
Needs NeedsOf(const Plan& plan);

// The source of `use`; the drift's where nothing uses one. REQUIRES: `plan` is
// without kNeedMixedSources if `use` is kCorrection.
RatioSource SourceOf(const Plan& plan, SourceUse use);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_MAKE_PLAN_H_
