#include "kernels/doctor/passes_impl.h"

namespace counterweight::kernels::doctor {

const Passes* GenericPasses() {
  static constexpr Passes kPasses = make_passes("generic");
  return &kPasses;
}

}  // namespace counterweight::kernels::doctor
