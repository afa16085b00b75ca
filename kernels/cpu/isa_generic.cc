#include "kernels/cpu/isa_kernels_impl.h"

namespace counterweight::kernels {

const IsaKernels* GenericKernels() {
  static constexpr IsaKernels kKernels = MakeKernels("generic");
  return &kKernels;
}

}  // namespace counterweight::kernels
