#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/corrector.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/run.h"
#include "tests/testing/specs.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

namespace counterweight::kernels {
namespace {

constexpr unsigned kFlushDenormals = 0x8040;  // FTZ and DAZ
constexpr unsigned kRoundDown = 0x2000;

// Training frameworks enable these modes in threads that then call this
// library.
TEST(FloatModes, OfTheCallerChangeNoByte) {
  Random random(1);
  std::vector<Row> rows = RandomRows(random, {70'000, 5, 300, 7, 4097});
  rows[1][InputRole::kOld] = {1e-40f, -2e-42f, 0.0f, 0.0f, -0.7f};
  rows[1][InputRole::kRollout] = {0.0f, 0.0f, 1e-44f, 0.0f, 0.0f};
  const OwnedBatch batch(rows);
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  const auto corrector = MakeCpuCorrector(2);
  const Corrected expected = RunCorrector(*corrector, spec, batch);
  ASSERT_GT(expected.sums().drift.abs_log_ratio, 0.0);
  const unsigned before = _mm_getcsr();
  for (unsigned mode : {kFlushDenormals, kRoundDown}) {
    _mm_setcsr(before | mode);
    const Corrected actual = RunCorrector(*corrector, spec, batch);
    const unsigned after = _mm_getcsr();
    // Its threads inherit the modes.
    const auto made_here = MakeCpuCorrector(2);
    _mm_setcsr(before);
    const Corrected inherited = RunCorrector(*made_here, spec, batch);
    EXPECT_EQ(after & mode, mode) << "the caller's modes are the caller's";
    EXPECT_EQ(actual.weights, expected.weights);
    EXPECT_EQ(0,
              std::memcmp(&actual.sums(), &expected.sums(), sizeof(BatchSums)))
        << mode;
    EXPECT_EQ(inherited.weights, expected.weights);
    EXPECT_EQ(
        0, std::memcmp(&inherited.sums(), &expected.sums(), sizeof(BatchSums)))
        << mode;
  }
}

}  // namespace
}  // namespace counterweight::kernels
#endif
