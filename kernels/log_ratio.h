// The one logarithm that turns a user's ratio bounds into log bounds.
#ifndef COUNTERWEIGHT_KERNELS_LOG_RATIO_H_
#define COUNTERWEIGHT_KERNELS_LOG_RATIO_H_

namespace counterweight::kernels {

// Natural logarithm of a ratio >= 0, the same bits on every machine; 0 gives
// -infinity.
double LogRatio(double ratio);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_LOG_RATIO_H_
