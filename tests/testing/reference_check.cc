#include "tests/testing/reference_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/reference.h"
#include "tests/testing/run.h"

namespace counterweight::kernels {
namespace {

// A decision closer than this to its bound may rightly differ from float64.
constexpr double kMargin = 1e-5;

void ExpectRefused(const CorrectResult& result,
                   const ReferenceNonFinite& expected) {
  ASSERT_EQ(result.status, CorrectStatus::kNonFinite);
  EXPECT_EQ(result.non_finite.role, expected.role);
  EXPECT_EQ(result.non_finite.sequence, expected.sequence);
  EXPECT_EQ(result.non_finite.token, expected.token);
  EXPECT_EQ(result.non_finite.input, expected.input);
}

}  // namespace

OwnedBatch BatchOf(const ReferenceCase& c) {
  OwnedBatch batch(c.rows, c.layout);
  Random random(c.groups);
  SetRandomGroups(random, batch);
  return batch;
}

Verdict CheckAgainstReference(const ReferenceCase& c,
                              const std::vector<Corrector*>& correctors) {
  EXPECT_TRUE(Validate(c.spec).empty()) << Validate(c.spec).front().reason;
  const OwnedBatch batch = BatchOf(c);
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

void RandomizeRows(Random& random, double spread, ReferenceCase& c) {
  RowShape shape{.spread = spread,
                 .masked = random.Uniform(0, 0.6),
                 .highest = -1e-3,
                 .one_advantage = 0.3};
  c.spec.non_finite = static_cast<NonFinitePolicy>(random.Integer(0, 2));
  if (random.Chance(0.3)) shape.non_finite = 0.02;
  std::vector<int64_t> lengths;
  for (int64_t i = random.Integer(0, 8); i > 0; --i)
    lengths.push_back(random.Chance(0.1)
                          ? 0
                          : random.Integer(1, random.Chance(0.02) ? 5000 : 70));
  c.rows = RandomRows(random, lengths, shape);
  int64_t& width = c.spec.loss.padded_length;
  for (int64_t length : lengths)
    if (width > 0) width = std::max(width, length + 5);
  c.layout.dtype =
      static_cast<DType>(random.Chance(0.7) ? 0 : random.Integer(1, 2));
  if (random.Chance(0.3)) c.layout.padded_length = 80;
}

std::string Describe(uint64_t seed, const ReferenceCase& c) {
  std::ostringstream text;
  text << "seed " << seed << ", lengths";
  for (const Row& row : c.rows) text << " " << row.size();
  text << ", padded to " << c.layout.padded_length << ", dtype "
       << static_cast<int>(c.layout.dtype) << "\n"
       << ToString(c.spec) << "\n"
       << Describe(c.spec.loss);
  return text.str();
}

}  // namespace counterweight::kernels
