// One line for each case, so that machines of different processors compare
// their answers as files.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_DIGESTS_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_DIGESTS_H_

#include <cstdio>

#include "kernels/corrector.h"
#include "tests/gpu_check/cases.h"

namespace counterweight::kernels {

// Writes "<digest of the inputs> <digest of the answer> <case>" for every
// `sample`-th case; the inputs are the tensors, which differ where the C
// library's log and cos do. Digests are FNV-1a of 64 bits, of the answer over
// all bytes of outputs and sums. Returns the number of lines, or -1 if one
// could not be written.
int WriteDigests(Corrector& corrector, CheckSize size, int sample,
                 std::FILE* file);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_DIGESTS_H_
