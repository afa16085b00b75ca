// The choice of an instruction set at run time.
#ifndef COUNTERWEIGHT_KERNELS_CPU_CHOOSE_KERNELS_H_
#define COUNTERWEIGHT_KERNELS_CPU_CHOOSE_KERNELS_H_

#include "kernels/corrector.h"
#include "kernels/cpu/isa_kernels.h"

namespace counterweight::kernels {

// Null if this machine or this build lacks the instruction set; never for
// kBest.
const IsaKernels* KernelsFor(CpuIsa isa);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_CHOOSE_KERNELS_H_
