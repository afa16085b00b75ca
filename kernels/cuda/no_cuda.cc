// Stands in for the CUDA backend in builds without it.
#include <memory>
#include <string>

#include "kernels/corrector.h"
#include "kernels/devices.h"

namespace counterweight::kernels {

int NumCudaDevices(std::string* error) {
  *error = "this build has no CUDA backend";
  return 0;
}

std::unique_ptr<Corrector> MakeCudaCorrector(int /*device*/,
                                             int64_t /*memory_bytes*/,
                                             std::string* error) {
  *error = "this build has no CUDA backend";
  return nullptr;
}

}  // namespace counterweight::kernels
