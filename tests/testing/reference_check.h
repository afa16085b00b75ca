// Every backend against the reference and against each other.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_CHECK_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {

// A batch and its spec.
struct ReferenceCase {
  CorrectionSpec spec;
  std::vector<Row> rows;
  Layout layout;
  // SetRandomGroups() with this seed.
  uint64_t groups = 0;
};

// Random rows of that spread, few or empty ones too, with non-finite numbers
// and half types in some; the spec's non-finite policy as well. Raises a
// padded_length.
void RandomizeRows(Random& random, double spread, ReferenceCase& c);

// The case's rows, and its groups.
OwnedBatch BatchOf(const ReferenceCase& c);

// For the message of a failure.
std::string Describe(uint64_t seed, const ReferenceCase& c);

// kCloseCall: some decision is so close to its bound that float32 may rightly
// decide otherwise; the backends were still compared with each other.
enum class Verdict { kCompared, kRefused, kCloseCall };

// Expects every byte equal between `correctors`, and the first to match the
// reference. REQUIRES: correctors is not empty.
Verdict CheckAgainstReference(const ReferenceCase& c,
                              const std::vector<Corrector*>& correctors);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_CHECK_H_
