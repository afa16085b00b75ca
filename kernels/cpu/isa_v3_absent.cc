// Builds for other processors than x86-64.
#include "kernels/cpu/isa_kernels.h"

namespace counterweight::kernels {

const IsaKernels* V3Kernels() { return nullptr; }

}  // namespace counterweight::kernels
