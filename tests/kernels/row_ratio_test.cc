// PPO's clip with the ratio of a whole row. The CPU has a walk of its own for
// it. Plans with peers' sums and batches without a gradient use the other walk
// and must give the same.
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sanitized.h"

namespace counterweight::kernels {
namespace {

class RowRatio : public EveryBackend {
 protected:
  // Sums of a batch without a gradient.
  BatchSums SumsAlone(const CorrectionSpec& spec, const OwnedBatch& batch) {
    return corrector_->Correct(spec, batch.view(), Outputs{}).sums;
  }

  void ExpectTheSame(CorrectionSpec spec, const OwnedBatch& batch) {
    const Corrected found = Correct(spec, batch);
    ASSERT_EQ(found.result.status, CorrectStatus::kOk);
    EXPECT_TRUE(SameSums(found.sums(), SumsAlone(spec, batch)));
    spec.loss.peer_sums = true;
    EXPECT_TRUE(SameOutputs(found, Correct(spec, batch)));
  }
};

CorrectionSpec SpecOf(double spread, RowCount row, bool metrics, bool caps) {
  LossSpec loss = BusyLoss(Surrogate::kPpoClip, spread);
  loss.level = LossLevel::kSequence;
  loss.reduction = {.count = BatchCount::kRows, .row = row};
  loss.peer_sums = false;
  if (!caps) loss.ratio_cap = LossSpec::kNoBound;
  CorrectionSpec spec = WithLoss(loss);
  spec.metrics = metrics;
  return spec;
}

// A spread of 300 makes ratios of 0 and of infinity.
TEST_P(RowRatio, IsThatOfTheCommonWalk) {
  std::vector<int64_t> lengths = {1, 0, 33, 1, 256, 257, 1, 1000, 4097, 64};
  if (!kSanitized) lengths.insert(lengths.end(), {13000, 70000, 1, 1});
  for (double spread : {1e-3, 0.3, 300.0}) {
    Random random(1);
    const OwnedBatch batch(RandomRows(random, lengths, {.spread = spread}));
    for (RowCount row : {RowCount::kTokens, RowCount::kOne}) {
      for (bool metrics : {true, false}) {
        for (bool caps : {true, false}) {
          SCOPED_TRACE(spread);
          ExpectTheSame(SpecOf(spread, row, metrics, caps), batch);
        }
      }
    }
  }
}

// Without advantage nothing is clipped or counts, whatever the ratio.
TEST_P(RowRatio, CostsNothingWithoutAdvantage) {
  for (float l : {-200.0f, 0.5f, 200.0f}) {
    const OwnedBatch batch({PolicyRow({l, l, l}, {0.0f, -0.0f, 0.0f})});
    const Corrected found =
        Correct(SpecOf(0.3, RowCount::kTokens, true, /*caps=*/false), batch);
    EXPECT_EQ(found.sums().loss.policy, 0.0);
    EXPECT_EQ(found.sums().loss.clipped, 0);
    EXPECT_EQ(found.gradient, std::vector<float>({0, 0, 0}));
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(RowRatio);

}  // namespace
}  // namespace counterweight::kernels
