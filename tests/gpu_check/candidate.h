// The backend that is compared or timed, by name.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_CANDIDATE_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_CANDIDATE_H_

#include <memory>
#include <string>

#include "kernels/corrector.h"
#include "tests/gpu_check/memory.h"

namespace counterweight::kernels {

struct Candidate {
  std::unique_ptr<Corrector> corrector;
  // The place of tensors that are resident.
  std::unique_ptr<Memory> memory;
};

// cuda, or cuda_arrays, with arrays in separate allocations for memory
// checkers, or to try the checks themselves generic, v3, v4. Without a
// corrector, and *error a sentence, if this machine has no such backend.
Candidate MakeCandidate(const std::string& name, std::string* error);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_CANDIDATE_H_
