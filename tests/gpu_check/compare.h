// Byte comparison of two backends' answers.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_COMPARE_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_COMPARE_H_

#include <string>

#include "tests/testing/run.h"

namespace counterweight::kernels {

// Empty if every output and every sum has the same bytes, or if both refused
// the batch for the same number; else the first difference, in words.
std::string FirstDifference(const Corrected& expected, const Corrected& actual);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_COMPARE_H_
