#include "tests/gpu_check/candidate.h"

#include "kernels/cuda/cuda_corrector.h"

namespace counterweight::kernels {
namespace {

std::unique_ptr<Corrector> MakeCorrector(const std::string& name,
                                         std::string* error) {
  if (name == "cuda") return MakeCudaCorrector(0, 0, error);
  if (name == "cuda_arrays") {
    return MakeCudaCorrector(0, CudaOptions{.separate_arrays = true}, error);
  }
  *error = "this machine has no such instruction set";
  if (name == "generic") return MakeCpuCorrector(1, CpuIsa::kGeneric);
  if (name == "v3") return MakeCpuCorrector(1, CpuIsa::kV3);
  if (name == "v4") return MakeCpuCorrector(1, CpuIsa::kV4);
  *error = "candidates are cuda, cuda_arrays, generic, v3 and v4";
  return nullptr;
}

}  // namespace

Candidate MakeCandidate(const std::string& name, std::string* error) {
  Candidate candidate;
  candidate.corrector = MakeCorrector(name, error);
  if (name.starts_with("cuda")) candidate.memory = MakeDeviceMemory();
  if (candidate.memory == nullptr) candidate.memory = MakeHostMemory();
  return candidate;
}

}  // namespace counterweight::kernels
