// How fast the device copies its own memory: the ceiling of kernels that move
// every byte once.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_COPY_BANDWIDTH_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_COPY_BANDWIDTH_H_

#include <cstdint>

namespace counterweight::kernels {

// Bytes read and written per second by a copy of `bytes` on device 0, the best
// of several; 0 without a device.
double CopyBandwidth(int64_t bytes);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_COPY_BANDWIDTH_H_
