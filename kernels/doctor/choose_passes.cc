#include "kernels/corrector.h"
#include "kernels/cpu/choose_kernels.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/doctor/passes.h"

namespace counterweight::kernels::doctor {

const Passes& BestPasses() {
  const IsaKernels* const best = KernelsFor(CpuIsa::kBest);
  if (best == V4Kernels()) return *V4Passes();
  if (best == V3Kernels()) return *V3Passes();
  return *GenericPasses();
}

}  // namespace counterweight::kernels::doctor
