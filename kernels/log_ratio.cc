#include "kernels/log_ratio.h"

#include "kernels/math/exp.h"

namespace counterweight::kernels {

double LogRatio(double ratio) { return log64(ratio); }

}  // namespace counterweight::kernels
