#include "kernels/cpu/isa_kernels.h"
#include "tests/testing/backends.h"

namespace counterweight::kernels {

std::vector<BackendCase> Backends() {
  // Sanitized builds, and those for other processors, have one copy.
  if (V3Kernels() == nullptr) {
    return {{"generic_x1", CpuIsa::kGeneric, 1},
            {"generic_x2", CpuIsa::kGeneric, 2},
            {"generic_x7", CpuIsa::kGeneric, 7}};
  }
  return {
      {"generic_x1", CpuIsa::kGeneric, 1}, {"v3_x1", CpuIsa::kV3, 1},
      {"v3_x2", CpuIsa::kV3, 2},           {"v3_x7", CpuIsa::kV3, 7},
      {"v4_x1", CpuIsa::kV4, 1},           {"v4_x2", CpuIsa::kV4, 2},
      {"v4_x7", CpuIsa::kV4, 7},
  };
}

}  // namespace counterweight::kernels
