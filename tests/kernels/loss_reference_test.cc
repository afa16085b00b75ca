// Compares the float64 reference's gradient, derived by hand, with central
// differences of its value.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference.h"
#include "tests/testing/reference_philox.h"

namespace counterweight::kernels {
namespace {

constexpr double kStep = 1e-5;
// Truncation is of the order of kStep^2, rounding of 1e-16 / kStep.
constexpr double kTolerance = 1e-8;

double LossAt(const LossSpec& loss, const ReferenceLossRow& row,
              const std::vector<double>& shift) {
  const RowLoss at = RowLossAt(loss, row, shift);
  return at.policy + loss.kl.coefficient * at.kl;
}

// The scale of the rounding of the row's value and of its terms' third
// derivatives.
double SizeOf(const LossSpec& loss, const ReferenceLossRow& row) {
  const RowLoss at =
      RowLossAt(loss, row, std::vector<double>(row.points.size(), 0.0));
  return at.policy_size + std::fabs(row.factor) +
         loss.kl.coefficient * (at.kl_size + std::fabs(row.kl_factor));
}

void ExpectDerivatives(const LossSpec& loss, const ReferenceLossRow& row,
                       const double* gradient) {
  const double size = SizeOf(loss, row);
  std::vector<double> shift(row.points.size(), 0.0);
  for (size_t t = 0; t < shift.size(); ++t) {
    shift[t] = kStep;
    const double above = LossAt(loss, row, shift);
    shift[t] = -kStep;
    const double below = LossAt(loss, row, shift);
    shift[t] = 0.0;
    EXPECT_NEAR(gradient[t], (above - below) / (2 * kStep),
                kTolerance * (size + std::fabs(gradient[t])))
        << "token " << t;
  }
}

// |x| bends at 0.
bool BendsWithinAStep(const LossSpec& loss, const ReferenceLossRow& row) {
  for (size_t t = 0; t < row.points.size(); ++t) {
    const bool bends = row.kl_over[t] &&
                       loss.kl.estimator == KlEstimator::kAbs &&
                       std::fabs(row.ref_difference[t]) <= kStep;
    if (bends ||
        (row.points[t].selected && std::fabs(row.points[t].log_ratio) <= kStep))
      return true;
  }
  return false;
}

class LossReference : public ::testing::TestWithParam<Surrogate> {};

TEST_P(LossReference, GradientIsTheDerivativeOfTheValue) {
  constexpr int kCases = 1000;
  constexpr int64_t kLongest = 12;
  int compared = 0;
  for (uint64_t seed = 0; seed < 4 * kCases && compared < kCases; ++seed) {
    Random random(seed);
    const double spread = random.Chance(0.5) ? 0.1 : 0.5;
    const CorrectionSpec spec =
        RandomLossSpec(random, spread, kLongest, GetParam());
    OwnedBatch batch(
        RandomRows(random, {kLongest, 1, 0, 7},
                   {.spread = spread, .highest = -1e-3, .one_advantage = 0.3}));
    SetRandomGroups(random, batch);
    const ReferenceResult reference = Reference(spec, batch.view());
    // A step could change the result of a comparison.
    if (reference.distance < 10 * kStep) continue;
    compared += 1;
    const double* gradient = reference.gradient.data();
    for (const ReferenceLossRow& row : reference.loss_rows) {
      if (!BendsWithinAStep(spec.loss, row))
        ExpectDerivatives(spec.loss, row, gradient);
      gradient += row.points.size();
    }
    if (HasFailure()) FAIL() << "seed " << seed << "\n" << ToString(spec);
  }
  EXPECT_EQ(compared, kCases) << "too many close calls";
}

INSTANTIATE_TEST_SUITE_P(Of, LossReference, ::testing::ValuesIn(Surrogates()),
                         [](const ::testing::TestParamInfo<Surrogate>& of) {
                           return std::string(Name(of.param));
                         });

// Known answers of the authors' Random123, kat_vectors.
TEST(ReferencePhilox, OfKnownCounters) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(ReferencePhilox({0, 0, 0, 0}, {0, 0}),
            Words({0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(ReferencePhilox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                            {0xffffffff, 0xffffffff}),
            Words({0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(ReferencePhilox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                            {0xa4093822, 0x299f31d0}),
            Words({0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace counterweight::kernels
