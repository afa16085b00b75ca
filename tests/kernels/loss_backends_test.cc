// Gradients and sums, byte for byte on every backend, and compared with the
// reference at boundaries of the walk.
#include <gtest/gtest.h>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/reference.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class LossBackends : public EveryBackend {
 protected:
  void ExpectSameBytes(const CorrectionSpec& spec, const OwnedBatch& batch) {
    const Corrected base = RunCorrector(BaseCorrector(), spec, batch);
    const Corrected here = Correct(spec, batch);
    EXPECT_EQ(base.result.status, here.result.status);
    EXPECT_TRUE(SameOutputs(base, here)) << Describe(spec.loss);
    EXPECT_TRUE(SameSums(base.sums(), here.sums())) << Describe(spec.loss);
  }
};

// The loss of BusyLoss() under the rules of BusySpec(), averaged by `row`.
CorrectionSpec SpecOf(Surrogate surrogate, LossLevel level, double spread,
                      RowCount row) {
  CorrectionSpec spec = BusySpec();
  spec.loss = BusyLoss(surrogate, spread);
  spec.loss.level = level;
  spec.loss.reduction = {.count = BatchCount::kKeptRows, .row = row};
  spec.loss.kl = {.estimator = KlEstimator::kK3, .coefficient = 0.1};
  spec.loss.allow_double_correction = true;
  return spec;
}

std::vector<CorrectionSpec> SpecsOf(double spread) {
  std::vector<CorrectionSpec> specs;
  for (Surrogate surrogate : Surrogates()) {
    for (LossLevel level :
         {LossLevel::kToken, LossLevel::kSequence, LossLevel::kSequenceToken}) {
      for (RowCount row : {RowCount::kKeptTokens, RowCount::kOne}) {
        if (kSanitized && row == RowCount::kOne) continue;
        const CorrectionSpec spec = SpecOf(surrogate, level, spread, row);
        if (Validate(spec).empty()) specs.push_back(spec);
      }
    }
  }
  return specs;
}

TEST_P(LossBackends, AgreeOnEverySurrogateAndLength) {
  Random random(1);
  std::vector<int64_t> lengths = {1, 0, 33, 257, 1000, 4097, 2, 64};
  if (!kSanitized) lengths.insert(lengths.begin() + 5, {4096, 13000});
  const OwnedBatch batch(
      RandomRows(random, lengths, {.spread = 0.2, .highest = -1e-3}));
  for (const CorrectionSpec& spec : SpecsOf(0.2)) ExpectSameBytes(spec, batch);
}

TEST_P(LossBackends, AgreeOnEverySpread) {
  Random random(2);
  for (double spread : {1e-6, 1e-3, 0.5, 3.0, 30.0}) {
    // The other spreads change numbers only.
    if (kSanitized && spread < 30.0) continue;
    const OwnedBatch batch(
        RandomRows(random, {700, 5000, 3, 90}, {.spread = spread}));
    for (const CorrectionSpec& spec : SpecsOf(spread))
      ExpectSameBytes(spec, batch);
  }
}

TEST_P(LossBackends, AgreeOnManyShortRows) {
  Random random(3);
  std::vector<int64_t> lengths;
  for (int i = 0; i < SanitizedSample(200); ++i)
    lengths.push_back(random.Integer(0, 12));
  OwnedBatch batch(RandomRows(random, lengths));
  SetRandomGroups(random, batch);
  for (Surrogate surrogate : Surrogates()) {
    CorrectionSpec spec =
        SpecOf(surrogate, LossLevel::kToken, 0.1, RowCount::kGroupTokens);
    spec.weight.normalize = true;
    ExpectSameBytes(spec, batch);
  }
}

TEST_P(LossBackends, AgreeOnDivisorsOfRows) {
  Random random(5);
  const std::vector<int64_t> lengths = {300, 0, 5000, 31, 64, 1, 700};
  OwnedBatch batch(RandomRows(random, lengths));
  std::vector<double> divisors;
  for (size_t i = 0; i < lengths.size(); ++i)
    divisors.push_back(static_cast<double>(random.Integer(1, 9000)));
  batch.SetRowDivisors(std::move(divisors));
  for (Surrogate surrogate : Surrogates()) {
    CorrectionSpec spec =
        SpecOf(surrogate, LossLevel::kToken, 0.1, RowCount::kGiven);
    spec.loss.kl.reduction = spec.loss.reduction;
    ExpectSameBytes(spec, batch);
  }
}

TEST_P(LossBackends, AgreeOnTheSameBatchTwice) {
  Random random(4);
  const OwnedBatch batch(RandomRows(random, {5000, 40000, 10}));
  for (Surrogate surrogate : {Surrogate::kPpoClip, Surrogate::kClipCov}) {
    const CorrectionSpec spec =
        SpecOf(surrogate, LossLevel::kToken, 0.1, RowCount::kTokens);
    const Corrected once = Correct(spec, batch), again = Correct(spec, batch);
    EXPECT_TRUE(SameOutputs(once, again));
    EXPECT_TRUE(SameSums(once.sums(), again.sums()));
  }
}

// Rows at the boundaries of lanes, blocks and segments, each alone. The seed
// must avoid decisions close to their bound.
TEST_P(LossBackends, EachSeamMatchesTheReference) {
  if (GetParam().threads == 2) GTEST_SKIP() << "1 and 7 threads tell enough";
  constexpr double kSpread = 0.2;
  for (int64_t length : {0, 1, 31, 32, 33, 256, 257, 4096, 4097, 70000}) {
    // Shorter rows cover the boundaries.
    if (kSanitized && length > 4097) continue;
    for (Surrogate surrogate : Surrogates()) {
      CorrectionSpec spec = WithLoss(BusyLoss(surrogate, kSpread));
      if (surrogate == Surrogate::kPpoClip)
        spec.loss.level = LossLevel::kSequence;
      spec.loss.reduction.row = RowCount::kTokens;
      bool compared = false;
      for (uint64_t seed = 0; seed < 30 && !compared; ++seed) {
        Random random(static_cast<uint64_t>(length) * 100 + seed);
        const OwnedBatch batch(
            {RandomRow(random, length, {.spread = kSpread, .highest = -1e-3})});
        const ReferenceResult reference = Reference(spec, batch.view());
        if (reference.margin < 1e-6) continue;
        compared = true;
        EXPECT_TRUE(MatchesReference(spec, Correct(spec, batch), reference))
            << Describe(spec.loss) << ", length " << length;
      }
      EXPECT_TRUE(compared)
          << "every seed is a close call: " << Describe(spec.loss)
          << ", length " << length;
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossBackends);

}  // namespace
}  // namespace counterweight::kernels
