// A server with a device that fails when a test in another process wants it:
// COUNTERWEIGHT_FAKE_CUDA_FAIL_OPERATION=n makes the n-th copy or kernel from
// the start fail, and all later ones; COUNTERWEIGHT_FAKE_CUDA_FAIL_LAUNCH=n the
// n-th launch alone.
#include <cstdint>
#include <cstdlib>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"

namespace counterweight::fake_cuda {
namespace {

int64_t Number(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? 0 : std::strtoll(value, nullptr, 10);
}

bool Plan() {
  const int64_t operation = Number("COUNTERWEIGHT_FAKE_CUDA_FAIL_OPERATION");
  if (operation > 0) FailOperation(operation, cudaErrorIllegalAddress);
  const int64_t launch = Number("COUNTERWEIGHT_FAKE_CUDA_FAIL_LAUNCH");
  if (launch > 0) FailCall("launch", launch, cudaErrorInvalidValue);
  return operation > 0 || launch > 0;
}

[[maybe_unused]] const bool planned = Plan();

}  // namespace
}  // namespace counterweight::fake_cuda
