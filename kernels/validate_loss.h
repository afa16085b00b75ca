// The loss's part of Validate().
#ifndef COUNTERWEIGHT_KERNELS_VALIDATE_LOSS_H_
#define COUNTERWEIGHT_KERNELS_VALIDATE_LOSS_H_

#include <limits>
#include <vector>

#include "kernels/spec.h"

namespace counterweight::kernels {

// Whether `x` is still above 0 as a float32, in which the kernels compute.
inline bool IsAboveZero(double x) {
  return x >= std::numeric_limits<float>::denorm_min();
}

// Appends every illegal value and combination of spec.loss.
void ValidateLoss(const CorrectionSpec& spec,
                  std::vector<SpecViolation>* violations);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_VALIDATE_LOSS_H_
