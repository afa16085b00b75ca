#include "tests/testing/backends.h"

namespace counterweight::kernels {

std::vector<BackendCase> Backends() {
  return {
      {"generic_x1", CpuIsa::kGeneric, 1}, {"v3_x1", CpuIsa::kV3, 1},
      {"v3_x2", CpuIsa::kV3, 2},           {"v3_x7", CpuIsa::kV3, 7},
      {"v4_x1", CpuIsa::kV4, 1},           {"v4_x2", CpuIsa::kV4, 2},
      {"v4_x7", CpuIsa::kV4, 7},
  };
}

}  // namespace counterweight::kernels
