// Thousands of random batches under random specs, against the reference.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// A decision closer than this to its bound may rightly differ from float64.
constexpr double kMargin = 1e-5;

struct Case {
  CorrectionSpec spec;
  std::vector<Row> rows;
  Layout layout;
};

Case RandomCase(uint64_t seed) {
  Random random(seed);
  constexpr double kSpreads[] = {1e-3, 0.02, 0.2, 1.0};
  Case c;
  RowShape shape{.spread = kSpreads[random.Integer(0, 3)],
                 .masked = random.Uniform(0, 0.6)};
  c.spec = RandomSpec(random, shape.spread);
  c.spec.non_finite = static_cast<NonFinitePolicy>(random.Integer(0, 2));
  if (random.Chance(0.3)) shape.non_finite = 0.02;
  std::vector<int64_t> lengths;
  for (int64_t i = random.Integer(0, 8); i > 0; --i)
    lengths.push_back(random.Chance(0.1)
                          ? 0
                          : random.Integer(1, random.Chance(0.02) ? 5000 : 70));
  c.rows = RandomRows(random, lengths, shape);
  c.layout.dtype =
      static_cast<DType>(random.Chance(0.7) ? 0 : random.Integer(1, 2));
  if (random.Chance(0.3)) c.layout.padded_length = 80;
  return c;
}

std::string Describe(uint64_t seed, const Case& c) {
  std::ostringstream text;
  text << "seed " << seed << ", lengths";
  for (const Row& row : c.rows) text << " " << row.size();
  text << ", padded to " << c.layout.padded_length << ", dtype "
       << static_cast<int>(c.layout.dtype) << "\n"
       << ToString(c.spec);
  return text.str();
}

void ExpectRefused(const CorrectResult& result,
                   const ReferenceNonFinite& expected) {
  ASSERT_EQ(result.status, CorrectStatus::kNonFinite);
  EXPECT_EQ(result.non_finite.role, expected.role);
  EXPECT_EQ(result.non_finite.sequence, expected.sequence);
  EXPECT_EQ(result.non_finite.token, expected.token);
  EXPECT_EQ(result.non_finite.input, expected.input);
}

enum class Verdict { kCompared, kRefused, kCloseCall };

Verdict Check(const Case& c, const std::vector<Corrector*>& correctors) {
  EXPECT_TRUE(Validate(c.spec).empty()) << Validate(c.spec).front().field;
  const OwnedBatch batch(c.rows, c.layout);
  const ReferenceResult reference = Reference(c.spec, batch.view());
  const Corrected first = RunCorrector(*correctors[0], c.spec, batch);
  if (reference.refused) {
    ExpectRefused(first.result, *reference.refused);
    return Verdict::kRefused;
  }
  EXPECT_EQ(first.result.status, CorrectStatus::kOk);
  for (size_t i = 1; i < correctors.size(); ++i) {
    const Corrected other = RunCorrector(*correctors[i], c.spec, batch);
    EXPECT_TRUE(SameOutputs(first, other))
        << correctors[i]->Info().instruction_set;
    EXPECT_TRUE(SameSums(first.sums(), other.sums()))
        << correctors[i]->Info().instruction_set;
  }
  if (reference.margin < kMargin) return Verdict::kCloseCall;
  EXPECT_TRUE(MatchesReference(c.spec, first, reference));
  return Verdict::kCompared;
}

class RandomSpecs : public ::testing::TestWithParam<int> {};

TEST_P(RandomSpecs, MatchTheReferenceOnEveryBackend) {
  constexpr int kCases = 1000;
  const std::vector<Corrector*> correctors = AvailableCorrectors();
  if (correctors.empty()) GTEST_SKIP() << "no backend here";
  int compared = 0;
  for (int i = 0; i < kCases; ++i) {
    const auto seed = static_cast<uint64_t>(GetParam() * kCases + i);
    const Case c = RandomCase(seed);
    compared += Check(c, correctors) == Verdict::kCompared;
    if (HasFailure()) FAIL() << Describe(seed, c);
  }
  EXPECT_GT(compared, kCases / 2) << "too many close calls to say much";
}

INSTANTIATE_TEST_SUITE_P(Thousands, RandomSpecs, ::testing::Range(0, 4));

}  // namespace
}  // namespace counterweight::kernels
