// How a method's weights change the gradient of a batch in log-prob space.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_SHADOW_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_SHADOW_H_

#include <cstdint>

#include "kernels/batch.h"

namespace counterweight::kernels::doctor {

// Sums over a batch's tokens, each with its ratio r, its weight w >= 0 and the
// magnitude a of its advantage: a r is the gradient without bias, a w the
// method's. NaN where a divisor is 0.
struct ShadowEffect {
  double bias = 0.0;        // sum a |r - w| / sum a r, >= 0
  double norm_ratio = 0.0;  // sqrt(sum (a w)^2 / sum (a r)^2), >= 0
  double cosine = 0.0;      // sum (a w) (a r) / the root of both sums, [0, 1]
};

// `batch` is in host memory. Without kAdvantages a is 1; a token with an
// advantage that is not finite is left out. `counted` and `kept` are 1 for the
// tokens that count and that the method keeps; `weights` may be null: 1. All
// have the batch's positions. The same bits on every machine.
ShadowEffect EffectOf(const Batch& batch, const uint8_t* counted,
                      const float* ratios, const uint8_t* kept,
                      const float* weights);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_SHADOW_H_
