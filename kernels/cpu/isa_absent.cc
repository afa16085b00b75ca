// Builds for other processors than x86-64 have the generic kernels only.
#include "kernels/cpu/isa_kernels.h"

namespace counterweight::kernels {

const IsaKernels* V3Kernels() { return nullptr; }
const IsaKernels* V4Kernels() { return nullptr; }

}  // namespace counterweight::kernels
