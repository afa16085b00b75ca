// Replaces the CUDA backend in builds without it.
#include <memory>
#include <string>

#include "kernels/corrector.h"
#include "kernels/cuda/cuda_corrector.h"
#include "kernels/devices.h"

namespace counterweight::kernels {
namespace {

#ifdef __aarch64__
constexpr char kNone[] =
    "this build has no CUDA backend, which exists for x86-64 only: compute on "
    "CPUs here, or call a server on x86-64";
#else
constexpr char kNone[] = "this build has no CUDA backend";
#endif

}  // namespace

bool IsBuiltWithCuda() { return false; }

int NumCudaDevices(std::string* error) {
  *error = kNone;
  return 0;
}

std::unique_ptr<Corrector> MakeCudaCorrector(int /*device*/,
                                             int64_t /*memory_bytes*/,
                                             std::string* error) {
  *error = kNone;
  return nullptr;
}

std::unique_ptr<Corrector> MakeCudaCorrector(int device,
                                             const CudaOptions& /*options*/,
                                             std::string* error) {
  return MakeCudaCorrector(device, int64_t{0}, error);
}

}  // namespace counterweight::kernels
