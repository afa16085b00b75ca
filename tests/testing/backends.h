// The backends that one body of tests runs on.
#ifndef COUNTERWEIGHT_TESTS_TESTING_BACKENDS_H_
#define COUNTERWEIGHT_TESTS_TESTING_BACKENDS_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "tests/testing/run.h"

namespace counterweight::kernels {

struct BackendCase {
  std::string name;  // "v4_x7": x86-64-v4, 7 threads
  CpuIsa isa = CpuIsa::kBest;
  int threads = 1;
  bool cuda = false;
};

// GoogleTest prints the case by its name.
void PrintTo(const BackendCase& backend, std::ostream* out);

// The program links one definition: backends_cpu.cc or backends_cuda.cc.
std::vector<BackendCase> Backends();

// Created once per program. Null if this machine or build has no such backend.
Corrector* SharedCorrector(const BackendCase& backend);

// The backends that this machine has.
std::vector<Corrector*> AvailableCorrectors();

// The reference for byte comparisons: the CPU backend, one thread, the best
// instruction set.
Corrector& BaseCorrector();

// TEST_P(Suite, ...) runs on every backend, and is skipped on missing ones.
class EveryBackend : public ::testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override;
  Corrected Correct(const CorrectionSpec& spec, const OwnedBatch& batch) {
    return RunCorrector(*corrector_, spec, batch);
  }

  Corrector* corrector_ = nullptr;
};

std::string BackendName(const ::testing::TestParamInfo<BackendCase>& info);

#define COUNTERWEIGHT_ON_EVERY_BACKEND(Suite)                          \
  INSTANTIATE_TEST_SUITE_P(On, Suite, ::testing::ValuesIn(Backends()), \
                           BackendName)

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_BACKENDS_H_
