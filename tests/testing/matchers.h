// Comparisons that name the first difference.
#ifndef COUNTERWEIGHT_TESTS_TESTING_MATCHERS_H_
#define COUNTERWEIGHT_TESTS_TESTING_MATCHERS_H_

#include <gtest/gtest.h>

#include "kernels/spec_violation.h"
#include "kernels/sums.h"
#include "tests/testing/reference.h"
#include "tests/testing/run.h"

namespace counterweight::kernels {

// Every output, byte for byte.
::testing::AssertionResult SameOutputs(const Corrected& a, const Corrected& b);

// Every sum, byte for byte. `skip`: a field that may differ, or none.
::testing::AssertionResult SameSums(const BatchSums& a, const BatchSums& b,
                                    const char* skip = "");

// Counts and extrema equal; sums within `relative` of `magnitudes`, the sums of
// the addends' absolute values.
::testing::AssertionResult SumsAgree(const BatchSums& a, const BatchSums& b,
                                     const BatchSums& magnitudes,
                                     double relative);

// Decisions and counts equal, numbers as close as float32 addends allow.
::testing::AssertionResult MatchesReference(const CorrectionSpec& spec,
                                            const Corrected& corrected,
                                            const ReferenceResult& reference);

// The fields that Validate() refuses; each must have a reason.
std::vector<SpecField> FieldsOf(const CorrectionSpec& spec);

// The sums of several batches as those of one. Leaves no normalizer.
std::vector<double> Combine(const std::vector<BatchSums>& parts);

// Combine()'s answer against the sums of the whole.
::testing::AssertionResult CombinesTo(const std::vector<BatchSums>& parts,
                                      const BatchSums& whole,
                                      const BatchSums& magnitudes,
                                      double relative);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_MATCHERS_H_
