#include "kernels/doctor/passes_impl.h"

namespace counterweight::kernels::doctor {

const Passes* V4Passes() {
  static constexpr Passes kPasses = make_passes("x86-64-v4");
  return &kPasses;
}

}  // namespace counterweight::kernels::doctor
