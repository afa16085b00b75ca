#include "tests/testing/backends.h"

namespace counterweight::kernels {

std::vector<BackendCase> Backends() { return {{.name = "cuda", .cuda = true}}; }

}  // namespace counterweight::kernels
