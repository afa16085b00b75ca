// A server whose device fails when a test in another process says so:
// COUNTERWEIGHT_FAKE_CUDA_FAIL_OPERATION=n makes the n-th copy or kernel from
// the start fail, and all later ones.
#include <cstdint>
#include <cstdlib>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"

namespace counterweight::fake_cuda {
namespace {

int64_t Plan() {
  const char* const value =
      std::getenv("COUNTERWEIGHT_FAKE_CUDA_FAIL_OPERATION");
  if (value == nullptr) return 0;
  const int64_t operation = std::strtoll(value, nullptr, 10);
  FailOperation(operation, cudaErrorIllegalAddress);
  return operation;
}

[[maybe_unused]] const int64_t planned = Plan();

}  // namespace
}  // namespace counterweight::fake_cuda
