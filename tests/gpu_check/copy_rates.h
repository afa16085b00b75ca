// Copy rates of memory, the reference for corrections.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_COPY_RATES_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_COPY_RATES_H_

#include <cstdint>

#include "tests/gpu_check/timing.h"

namespace counterweight::kernels {

// A copy of `bytes` within device 0; it reads and writes so many each. Of the
// host's memory in builds without CUDA. No repetitions: it failed.
Timing TimeDeviceCopy(int64_t bytes);

// Bytes per second between the host's memory and device 0, the best of several
// copies; 0 in builds without CUDA, or if it failed.
struct LinkRates {
  double up = 0.0;
  double down = 0.0;
  // Both directions together, the same bytes each way at once; 0 if the memory
  // is not pinned.
  double both = 0.0;
};

// Each direction copies `bytes` at a time, from and to pinned memory or such as
// malloc gives.
LinkRates MeasureLink(int64_t bytes, bool pinned);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_COPY_RATES_H_
