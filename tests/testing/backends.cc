#include "tests/testing/backends.h"

#include <map>
#include <memory>

#include "kernels/cuda/cuda_corrector.h"

namespace counterweight::kernels {
namespace {

std::unique_ptr<Corrector> Make(const BackendCase& backend) {
  std::string error;
  // Their ends are checked; the others that run CUDA have them in one piece.
  return backend.cuda ? MakeCudaCorrector(
                            0, CudaOptions{.separate_arrays = true}, &error)
                      : MakeCpuCorrector(backend.threads, backend.isa);
}

}  // namespace

void PrintTo(const BackendCase& backend, std::ostream* out) {
  *out << backend.name;
}

Corrector* SharedCorrector(const BackendCase& backend) {
  static std::map<std::string, std::unique_ptr<Corrector>> correctors;
  const auto found = correctors.find(backend.name);
  if (found != correctors.end()) return found->second.get();
  return (correctors[backend.name] = Make(backend)).get();
}

std::vector<Corrector*> AvailableCorrectors() {
  std::vector<Corrector*> available;
  for (const BackendCase& backend : Backends())
    if (Corrector* corrector = SharedCorrector(backend))
      available.push_back(corrector);
  return available;
}

Corrector& BaseCorrector() {
  return *SharedCorrector({.name = "base", .isa = CpuIsa::kBest, .threads = 1});
}

std::string BackendName(const ::testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}

void EveryBackend::SetUp() {
  corrector_ = SharedCorrector(GetParam());
  if (corrector_ == nullptr)
    GTEST_SKIP() << "no backend " << GetParam().name << " here";
}

}  // namespace counterweight::kernels
