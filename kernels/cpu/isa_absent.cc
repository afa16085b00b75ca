// Builds with one copy of the kernels: those for other processors than x86-64,
// and sanitized ones.
#include "kernels/cpu/isa_kernels.h"

namespace counterweight::kernels {

const IsaKernels* V3Kernels() { return nullptr; }

const IsaKernels* V4Kernels() { return nullptr; }

}  // namespace counterweight::kernels
