// The reason why no device can be used, with what to install.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DRIVER_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DRIVER_H_

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace counterweight::kernels {

// cudaErrorInsufficientDriver: the result of a first call without a driver, or
// with one older than the runtime of this build.
inline constexpr cudaError_t kDriverTooOld = static_cast<cudaError_t>(35);

// The sentence for an error of a first call. Reads the driver's release if that
// is what is wrong.
std::string WhyNoDevice(cudaError_t error);

// `release` is the driver's, "550.54.15", or empty: none is seen. `runtime` is
// the version of CUDA as 1000 * major + 10 * minor.
std::string DriverTooOld(std::string_view release, int runtime);

// The release in the first line of /proc/driver/nvidia/version; empty if there
// is none.
std::string_view ReleaseIn(std::string_view line);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DRIVER_H_
