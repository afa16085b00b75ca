// As kernels/cpu/isa_absent.cc.
#include "kernels/doctor/passes.h"

namespace counterweight::kernels::doctor {

const Passes* V3Passes() { return nullptr; }

const Passes* V4Passes() { return nullptr; }

}  // namespace counterweight::kernels::doctor
