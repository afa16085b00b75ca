// The loss's part of Validate().
#ifndef COUNTERWEIGHT_KERNELS_VALIDATE_LOSS_H_
#define COUNTERWEIGHT_KERNELS_VALIDATE_LOSS_H_

#include <vector>

#include "kernels/spec.h"

namespace counterweight::kernels {

// Appends every illegal value and combination of spec.loss.
void ValidateLoss(const CorrectionSpec& spec,
                  std::vector<SpecViolation>* violations);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_VALIDATE_LOSS_H_
