// Builds for other processors than x86-64, and sanitized ones, whose machines
// learn nothing from the same source a third time.
#include "kernels/cpu/isa_kernels.h"

namespace counterweight::kernels {

const IsaKernels* V4Kernels() { return nullptr; }

}  // namespace counterweight::kernels
