// The ways to pass a batch to a corrector; the answer must not depend on them.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_CASE_RUNS_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_CASE_RUNS_H_

#include "kernels/corrector.h"
#include "tests/gpu_check/cases.h"
#include "tests/gpu_check/memory.h"
#include "tests/testing/run.h"

namespace counterweight::kernels {

// From host memory, all at once.
Corrected RunWhole(Corrector& corrector, const CheckCase& c);

// From host memory, rows one after the other; `seed` selects which arrive
// together, and whether the mask is first.
Corrected RunInPieces(Corrector& corrector, const CheckCase& c, uint64_t seed);

// Tensors and outputs in `memory`, each `misalignment` elements behind the
// begin of an allocation, and the mask too if `misalignment` is odd.
Corrected RunResident(Corrector& corrector, const CheckCase& c, Memory& memory,
                      int64_t misalignment);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_CASE_RUNS_H_
