// Log-probs above 0 are counted, by token.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/reference.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// Rows of every length class, with log-probs of +0, -0 and below.
std::vector<Row> RowsBelowZero() {
  Random random(1);
  std::vector<Row> rows =
      RandomRows(random, {1, 40, 300, 5000}, {.masked = 0, .highest = -0.25});
  rows[1][InputRole::kOld][3] = 0.0f;
  rows[1][InputRole::kRollout][3] = -0.0f;
  return rows;
}

class Positive : public EveryBackend {
 protected:
  int64_t Count(const CorrectionSpec& spec, const std::vector<Row>& rows,
                const Layout& layout = {}) {
    return Correct(spec, OwnedBatch(rows, layout)).sums().positive_log_probs;
  }
};

TEST_P(Positive, NoneUsually) { EXPECT_EQ(Count({}, RowsBelowZero()), 0); }

TEST_P(Positive, ATokenCountsOnceWhateverTensorsItIsIn) {
  std::vector<Row> rows = RowsBelowZero();
  rows[0][InputRole::kOld][0] = 1e-45f;
  rows[1][InputRole::kRollout][7] = 1e-7f;
  rows[2][InputRole::kOld][299] = rows[2][InputRole::kRollout][299] = 0.125f;
  rows[3][InputRole::kOld][4500] = 0.03f;
  EXPECT_EQ(Count({}, rows), 4);
  // Masked ones are not read, nor are tensors of other specs.
  rows[3].mask[4500] = 0;
  rows[3][InputRole::kCurrent][17] = 1.0f;
  rows[3][InputRole::kRef][18] = 1.0f;
  rows[3][InputRole::kAdvantages][19] = 1.0f;
  EXPECT_EQ(Count({}, rows), 3);
  CorrectionSpec spec;
  spec.metrics = false;
  EXPECT_EQ(Count(spec, rows), 3);
}

TEST_P(Positive, OfTheTensorsThatALossReads) {
  std::vector<Row> rows = RowsBelowZero();
  rows[2][InputRole::kCurrent][0] = 0.5f;
  rows[2][InputRole::kRef][1] = 0.5f;
  rows[2][InputRole::kRollout][2] = 0.5f;
  LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                   .level = LossLevel::kSequence};
  EXPECT_EQ(Count(WithLoss(loss), rows), 1);
  loss.kl.estimator = KlEstimator::kK3;
  EXPECT_EQ(Count(WithLoss(loss), rows), 2);
  loss.source = RatioSource::kCurrentRollout;
  EXPECT_EQ(Count(WithLoss(loss), rows), 3);
}

TEST_P(Positive, WhatIsNotFiniteIsNotCounted) {
  std::vector<Row> rows = RowsBelowZero();
  rows[2][InputRole::kOld][5] = std::numeric_limits<float>::infinity();
  rows[2][InputRole::kOld][6] = kNaN;
  rows[2][InputRole::kRollout][6] = 0.5f;
  rows[2][InputRole::kRollout][7] = 0.5f;
  for (const NonFinitePolicy policy :
       {NonFinitePolicy::kDrop, NonFinitePolicy::kNeutralize}) {
    CorrectionSpec spec;
    spec.non_finite = policy;
    EXPECT_EQ(Count(spec, rows), 1);
  }
}

TEST_P(Positive, OfEveryDtypeAsTheReferenceCounts) {
  Random random(2);
  std::vector<Row> rows =
      RandomRows(random, {40, 1, 300, 4200, 0}, {.spread = 1.0, .masked = 0.3});
  for (Row& row : rows) {
    for (float& x : row[InputRole::kOld]) x += 0.5f;
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t padded : {0, 5000}) {
      const OwnedBatch batch(rows, {.dtype = dtype, .padded_length = padded});
      const CorrectionSpec spec = BusySpec();
      const Corrected corrected = Correct(spec, batch);
      EXPECT_GT(corrected.sums().positive_log_probs, 100);
      EXPECT_EQ(corrected.sums().positive_log_probs,
                Reference(spec, batch.view()).sums.positive_log_probs);
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Positive);

}  // namespace
}  // namespace counterweight::kernels
