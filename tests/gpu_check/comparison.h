// Runs cases on two backends, along every way of a batch, and counts those with
// different bytes.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_COMPARISON_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_COMPARISON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "tests/gpu_check/cases.h"
#include "tests/gpu_check/memory.h"

namespace counterweight::kernels {

class Comparison {
 public:
  // `memory` holds the candidate's tensors, besides the host's memory.
  Comparison(Corrector& reference, Corrector& candidate, Memory& memory)
      : reference_(reference), candidate_(candidate), memory_(memory) {}

  // Every `sample`-th case of every shape of that size, in every dtype.
  void Run(CheckSize size, int sample);

  // Many requests in so many threads at once, each compared.
  void RunConcurrently(int threads, int sample);

  int compared() const { return compared_; }
  int different() const { return different_; }

 private:
  void Compare(const CheckCase& c, const std::string& where, uint64_t index);
  // Prints it, the first so many times.
  void Count(const CheckCase& c, const std::string& where,
             const std::string& difference);

  Corrector& reference_;
  Corrector& candidate_;
  Memory& memory_;
  int compared_ = 0;
  int different_ = 0;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_COMPARISON_H_
