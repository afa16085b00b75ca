// Thousands of random batches under random specs, against the reference.
#include <gtest/gtest.h>

#include <bit>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/reference_check.h"
#include "tests/testing/run.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

constexpr double kSpreads[] = {1e-3, 0.02, 0.2, 1.0};

ReferenceCase RandomCase(uint64_t seed, bool with_loss) {
  Random random(seed);
  const double spread = kSpreads[random.Integer(0, 3)];
  ReferenceCase c;
  c.groups = seed;
  c.spec = with_loss ? RandomLossSpec(random, spread, 100)
                     : RandomSpec(random, spread);
  if (random.Chance(0.3)) c.spec = WithTurns(random, c.spec);
  RandomizeRows(random, spread, c);
  return c;
}

class RandomSpecs : public ::testing::TestWithParam<int> {
 protected:
  void CheckThousand(bool with_loss) {
    constexpr int kCases = SanitizedSample(1000);
    const std::vector<Corrector*> correctors = AvailableCorrectors();
    if (correctors.empty()) GTEST_SKIP() << "no backend here";
    int compared = 0;
    for (int i = 0; i < kCases; ++i) {
      const auto seed = static_cast<uint64_t>(GetParam() * kCases + i);
      const ReferenceCase c = RandomCase(seed, with_loss);
      compared += CheckAgainstReference(c, correctors) == Verdict::kCompared;
      if (HasFailure()) FAIL() << Describe(seed, c);
    }
    EXPECT_GT(compared, kCases / 2) << "too many close calls to say much";
  }
};

TEST_P(RandomSpecs, MatchTheReferenceOnEveryBackend) { CheckThousand(false); }

TEST_P(RandomSpecs, WithALossMatchTheReferenceOnEveryBackend) {
  CheckThousand(true);
}

// Compares the answer of a caller without metrics.
void ExpectSameWithoutMetrics(const Corrected& with, const Corrected& without) {
  EXPECT_EQ(with.result.status, without.result.status);
  if (with.result.status != CorrectStatus::kOk) return;
  EXPECT_TRUE(SameOutputs(with, without));
  const BatchSums& a = with.sums();
  const BatchSums& b = without.sums();
  EXPECT_EQ(a.num_sequences, b.num_sequences);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.nonempty_sequences, b.nonempty_sequences);
  EXPECT_EQ(a.kept_tokens, b.kept_tokens);
  EXPECT_EQ(a.kept_sequences, b.kept_sequences);
  EXPECT_EQ(a.non_finite_tokens, b.non_finite_tokens);
  EXPECT_EQ(a.positive_log_probs, b.positive_log_probs);
  EXPECT_EQ(std::bit_cast<uint64_t>(a.loss.policy),
            std::bit_cast<uint64_t>(b.loss.policy));
  EXPECT_EQ(std::bit_cast<uint64_t>(a.loss.kl_penalty),
            std::bit_cast<uint64_t>(b.loss.kl_penalty));
}

TEST_P(RandomSpecs, GiveTheSameWithoutMetrics) {
  const std::vector<Corrector*> correctors = AvailableCorrectors();
  if (correctors.empty()) GTEST_SKIP() << "no backend here";
  constexpr int kCases = SanitizedSample(500);
  for (int i = 0; i < kCases; ++i) {
    const auto seed = static_cast<uint64_t>(GetParam() * kCases + i);
    const ReferenceCase c = RandomCase(seed, i % 2 == 0);
    const OwnedBatch batch = BatchOf(c);
    CorrectionSpec without = c.spec;
    without.metrics = false;
    for (Corrector* corrector : correctors) {
      ExpectSameWithoutMetrics(RunCorrector(*corrector, c.spec, batch),
                               RunCorrector(*corrector, without, batch));
    }
    if (HasFailure()) FAIL() << Describe(seed, c);
  }
}

INSTANTIATE_TEST_SUITE_P(Thousands, RandomSpecs, ::testing::Range(0, 4));

}  // namespace
}  // namespace counterweight::kernels
