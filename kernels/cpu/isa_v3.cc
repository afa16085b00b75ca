#include "kernels/cpu/isa_kernels_impl.h"

namespace counterweight::kernels {

const IsaKernels* V3Kernels() {
  static constexpr IsaKernels kKernels = MakeKernels("x86-64-v3");
  return &kKernels;
}

}  // namespace counterweight::kernels
