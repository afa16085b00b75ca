// Same inputs, same bytes: on every instruction set, thread count and device.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "kernels/methods.h"
#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class BackendsAgree : public EveryBackend {
 protected:
  void ExpectSameBytes(const CorrectionSpec& spec, const OwnedBatch& batch) {
    const Corrected base = RunCorrector(BaseCorrector(), spec, batch);
    const Corrected here = Correct(spec, batch);
    EXPECT_EQ(base.result.status, here.result.status);
    EXPECT_TRUE(SameOutputs(base, here)) << ToString(spec);
    EXPECT_TRUE(SameSums(base.sums(), here.sums())) << ToString(spec);
  }
};

TEST_P(BackendsAgree, OnEveryMethodOfTheTable) {
  Random random(1);
  const OwnedBatch batch(RandomRows(
      random, {1, 0, 33, 257, 1000, 4097, 13000, 2, 64}, {.spread = 0.2}));
  for (const Method& method : Methods()) {
    SCOPED_TRACE(method.name);
    std::vector<ParameterViolation> none;
    ExpectSameBytes(MakeSpec(method, {}, &none), batch);
  }
}

TEST_P(BackendsAgree, OnEverySpread) {
  Random random(2);
  for (double spread : {1e-6, 1e-4, 1e-2, 0.5, 3.0, 30.0}) {
    const OwnedBatch batch(
        RandomRows(random, {700, 5000, 3, 90}, {.spread = spread}));
    ExpectSameBytes(BusySpec(), batch);
  }
}

TEST_P(BackendsAgree, OnManyShortRows) {
  Random random(3);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 3000; ++i) lengths.push_back(random.Integer(0, 12));
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  ExpectSameBytes(spec, OwnedBatch(RandomRows(random, lengths)));
}

// Instruction sets settle two, four or eight rows together; the rest of a batch
// leaves some of them without a row. Sums of -0 stay so.
TEST_P(BackendsAgree, OnAFewRows) {
  Random random(7);
  Row zeros = RandomRow(random, 3);
  for (std::vector<float>& values : zeros.values) {
    std::fill(values.begin(), values.end(), 0.0f);
  }
  for (size_t rows = 1; rows <= 17; ++rows) {
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < rows; ++i) lengths.push_back(random.Integer(0, 40));
    const OwnedBatch batch(RandomRows(random, lengths));
    const OwnedBatch of_zeros(std::vector<Row>(rows, zeros));
    for (Level level : {Level::kToken, Level::kSequence}) {
      CorrectionSpec spec = BusySpec();
      spec.weight.level = level;
      ExpectSameBytes(spec, batch);
      ExpectSameBytes(spec, of_zeros);
    }
    ExpectSameBytes(WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2)), batch);
    if (HasFailure()) FAIL() << "at " << rows << " rows";
  }
}

TEST_P(BackendsAgree, OnRandomSpecs) {
  Random random(4);
  for (int i = 0; i < SanitizedSample(200); ++i) {
    const double spread = random.Chance(0.5) ? 0.01 : 1.0;
    CorrectionSpec spec = RandomSpec(random, spread);
    spec.non_finite = NonFinitePolicy::kNeutralize;
    const OwnedBatch batch(RandomRows(random, {300, 40, 4500, 1},
                                      {.spread = spread, .non_finite = 0.001}));
    ExpectSameBytes(spec, batch);
    if (HasFailure()) FAIL() << "at spec " << i;
  }
}

TEST_P(BackendsAgree, OnTheSameBatchTwice) {
  Random random(5);
  const OwnedBatch batch(RandomRows(random, {5000, 40000, 10}));
  const Corrected once = Correct(BusySpec(), batch),
                  again = Correct(BusySpec(), batch);
  EXPECT_TRUE(SameOutputs(once, again));
  EXPECT_TRUE(SameSums(once.sums(), again.sums()));
}

TEST_P(BackendsAgree, OnConcurrentCalls) {
  constexpr int kCallers = 4;
  Random random(6);
  std::vector<OwnedBatch> batches;
  std::vector<Corrected> alone;
  for (int i = 0; i < kCallers; ++i) {
    batches.emplace_back(RandomRows(random, {9000, 40, 0, 700}));
    alone.push_back(Correct(BusySpec(), batches.back()));
  }
  std::vector<Corrected> together(kCallers);
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i)
    callers.emplace_back(
        [&, i] { together[i] = Correct(BusySpec(), batches[i]); });
  for (std::thread& caller : callers) caller.join();
  for (int i = 0; i < kCallers; ++i) {
    EXPECT_TRUE(SameOutputs(alone[i], together[i]));
    EXPECT_TRUE(SameSums(alone[i].sums(), together[i].sums()));
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(BackendsAgree);

}  // namespace
}  // namespace counterweight::kernels
