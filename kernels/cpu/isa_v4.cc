#include "kernels/cpu/isa_kernels_impl.h"

namespace counterweight::kernels {

const IsaKernels* V4Kernels() {
  static constexpr IsaKernels kKernels = MakeKernels("x86-64-v4");
  return &kKernels;
}

}  // namespace counterweight::kernels
