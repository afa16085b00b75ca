#include "server/backend.h"

namespace counterweight::server {
namespace {

std::unique_ptr<kernels::Corrector> MakeCpu(const Config& config,
                                            std::string* error) {
  auto corrector = kernels::MakeCpuCorrector(NumThreads(config));
  if (corrector == nullptr) {
    *error =
        "--backend=cpu: this machine lacks the instruction set that this "
        "build needs";
  }
  return corrector;
}

std::unique_ptr<kernels::Corrector> MakeCuda(std::string* error) {
  std::string reason;
  auto corrector = kernels::MakeCudaCorrector(/*device=*/0, &reason);
  if (corrector == nullptr) *error = "--backend=cuda: " + reason;
  return corrector;
}

}  // namespace

std::unique_ptr<kernels::Corrector> MakeCorrector(const Config& config,
                                                  std::string* error) {
  switch (config.backend) {
    case Backend::kCpu:
      return MakeCpu(config, error);
    case Backend::kCuda:
      return MakeCuda(error);
    case Backend::kAuto:
      break;
  }
  std::string no_cuda;
  if (auto corrector = MakeCuda(&no_cuda)) return corrector;
  return MakeCpu(config, error);
}

}  // namespace counterweight::server
