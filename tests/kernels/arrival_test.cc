// Batches that arrive row by row: the same bytes as whole ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class Arrival : public EveryBackend {
 protected:
  void ExpectSameBytes(const CorrectionSpec& spec, const OwnedBatch& batch,
                       Random& random) {
    const Corrected whole = Correct(spec, batch);
    for (const bool mask_first : {false, true}) {
      std::vector<int64_t> arrivals;
      for (int64_t rows = 0; rows < batch.num_sequences();) {
        rows += random.Integer(1, 1 + batch.num_sequences() / 3);
        arrivals.push_back(std::min(rows, batch.num_sequences()));
      }
      // Finish alone announces the last rows.
      if (random.Chance(0.5) && !arrivals.empty()) arrivals.pop_back();
      const Corrected pieces =
          RunArriving(*corrector_, spec, batch, arrivals, mask_first);
      EXPECT_EQ(whole.result.status, pieces.result.status);
      EXPECT_TRUE(SameOutputs(whole, pieces)) << ToString(spec);
      EXPECT_TRUE(SameSums(whole.sums(), pieces.sums())) << ToString(spec);
    }
  }
};

TEST_P(Arrival, OfRandomSpecs) {
  Random random(1);
  for (int i = 0; i < SanitizedSample(100); ++i) {
    const CorrectionSpec spec = RandomSpec(random, 0.2);
    ExpectSameBytes(
        spec,
        OwnedBatch(RandomRows(random, {40, 0, 5000, 1, 300, 77, 4096, 12, 900},
                              {.spread = 0.2, .non_finite = 0.0})),
        random);
  }
}

TEST_P(Arrival, OfRandomLosses) {
  Random random(2);
  for (int i = 0; i < SanitizedSample(100); ++i) {
    const CorrectionSpec spec = RandomLossSpec(random, 0.2, 5000);
    OwnedBatch batch(
        RandomRows(random, {40, 0, 5000, 1, 300, 77, 12, 90}, {.spread = 0.2}));
    SetRandomGroups(random, batch);
    ExpectSameBytes(spec, batch, random);
  }
}

TEST_P(Arrival, OfEverySurrogate) {
  Random random(3);
  for (const Surrogate surrogate : Surrogates()) {
    CorrectionSpec spec = BusySpec();
    spec.loss = BusyLoss(surrogate, 0.2);
    spec.loss.allow_double_correction = true;
    if (!Validate(spec).empty()) spec = WithLoss(BusyLoss(surrogate, 0.2));
    ExpectSameBytes(spec,
                    OwnedBatch(RandomRows(random, {50, 9000, 3, 700, 0, 256})),
                    random);
  }
}

// Rows that are split between threads, and more rows than groups.
TEST_P(Arrival, OfLongRowsAndOfManyRows) {
  Random random(4);
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  ExpectSameBytes(
      spec, OwnedBatch(RandomRows(random, {10, 70000, 5, 200000, 3})), random);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 9000; ++i) lengths.push_back(random.Integer(0, 5));
  ExpectSameBytes(spec, OwnedBatch(RandomRows(random, lengths)), random);
}

TEST_P(Arrival, FindsTheFirstNonFiniteNumber) {
  Random random(5);
  CorrectionSpec spec = BusySpec();
  spec.non_finite = NonFinitePolicy::kReject;
  const OwnedBatch batch(
      RandomRows(random, {100, 50, 300}, {.non_finite = 0.05}));
  const Corrected whole = Correct(spec, batch);
  const Corrected pieces = RunArriving(*corrector_, spec, batch, {1, 2}, false);
  ASSERT_EQ(pieces.result.status, CorrectStatus::kNonFinite);
  EXPECT_EQ(pieces.result.non_finite.sequence,
            whole.result.non_finite.sequence);
  EXPECT_EQ(pieces.result.non_finite.token, whole.result.non_finite.token);
}

TEST_P(Arrival, StopsWhenAskedTo) {
  Random random(6);
  const OwnedBatch batch(RandomRows(random, {100, 70000, 50, 300}));
  for (const bool with_loss : {false, true}) {
    CorrectionSpec spec = BusySpec();
    if (with_loss) {
      spec = WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2));
      spec.non_finite = NonFinitePolicy::kDrop;  // takes a walk ahead
    }
    std::atomic<bool> stop = false;
    const std::unique_ptr<CorrectRun> run = corrector_->Begin(
        spec, batch.view(), Outputs{}, [&] { return stop.load(); });
    run->Advance(1, true);
    stop = true;
    run->Advance(2, true);
    EXPECT_EQ(run->Finish().status, CorrectStatus::kStopped);
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Arrival);

}  // namespace
}  // namespace counterweight::kernels
