#include "tests/gpu_check/copy_bandwidth.h"

namespace counterweight::kernels {

double CopyBandwidth(int64_t /*bytes*/) { return 0.0; }

}  // namespace counterweight::kernels
