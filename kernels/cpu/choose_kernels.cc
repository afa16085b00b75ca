#include "kernels/cpu/choose_kernels.h"

namespace counterweight::kernels {

const IsaKernels* KernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  const bool v3 = __builtin_cpu_supports("avx2") &&
                  __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") &&
                  __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#else
  constexpr bool v3 = false;
  constexpr bool v4 = false;
#endif
  switch (isa) {
    case CpuIsa::kBest:
      // The build may lack the one or the other.
      if (v4 && V4Kernels() != nullptr) return V4Kernels();
      if (v3 && V3Kernels() != nullptr) return V3Kernels();
      return GenericKernels();
    case CpuIsa::kV3:
      return v3 ? V3Kernels() : nullptr;
    case CpuIsa::kV4:
      return v4 ? V4Kernels() : nullptr;
    case CpuIsa::kGeneric:
      return GenericKernels();
  }
  return nullptr;
}

}  // namespace counterweight::kernels
