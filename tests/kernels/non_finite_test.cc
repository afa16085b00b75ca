// REJECT, DROP and NEUTRALIZE.
#include <gtest/gtest.h>

#include <limits>

#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kHuge = 3e38f;

class NonFiniteNumbers : public EveryBackend {
 protected:
  void ExpectRefused(const CorrectionSpec& spec, const std::vector<Row>& rows,
                     const NonFinite& expected) {
    const CorrectResult result = Correct(spec, OwnedBatch(rows)).result;
    ASSERT_EQ(result.status, CorrectStatus::kNonFinite);
    EXPECT_EQ(result.non_finite.role, expected.role);
    EXPECT_EQ(result.non_finite.sequence, expected.sequence);
    EXPECT_EQ(result.non_finite.token, expected.token);
    EXPECT_EQ(result.non_finite.input, expected.input);
  }
};

std::vector<Row> CleanRows() {
  Random random(1);
  return RandomRows(random, {40, 0, 5000, 0, 0, 300}, {.masked = 0});
}

TEST_P(NonFiniteNumbers, RejectNamesTheFirstInRowMajorOrder) {
  for (float bad : {kNaN, kInfinity, -kInfinity}) {
    std::vector<Row> rows = CleanRows();
    rows[5][InputRole::kRollout][7] = bad;
    ExpectRefused({}, rows, {InputRole::kRollout, 5, 7, true});
    rows[2][InputRole::kOld][4999] = bad;
    ExpectRefused({}, rows, {InputRole::kOld, 2, 4999, true});
    rows[2][InputRole::kRollout][4500] = bad;
    ExpectRefused({}, rows, {InputRole::kRollout, 2, 4500, true});
    rows[2][InputRole::kOld][33] = bad;
    rows[2][InputRole::kOld][32] = bad;
    ExpectRefused({}, rows, {InputRole::kOld, 2, 32, true});
    rows[0][InputRole::kOld][0] = bad;
    ExpectRefused({}, rows, {InputRole::kOld, 0, 0, true});
  }
}

TEST_P(NonFiniteNumbers, RejectNamesTheLowestRoleOfSeveral) {
  std::vector<Row> rows = CleanRows();
  rows[2][InputRole::kOld][9] = kNaN;
  rows[2][InputRole::kCurrent][9] = kNaN;
  CorrectionSpec spec =
      WithWeight({.level = Level::kToken, .source = RatioSource::kCurrentOld});
  ExpectRefused(spec, rows, {InputRole::kOld, 2, 9, true});
  rows[2][InputRole::kRollout][9] = kInfinity;
  ExpectRefused(spec, rows, {InputRole::kRollout, 2, 9, true});
}

TEST_P(NonFiniteNumbers, RejectNamesTheNumeratorOfAnOverflow) {
  std::vector<Row> rows = CleanRows();
  rows[5][InputRole::kCurrent][8] = kHuge;
  rows[5][InputRole::kRollout][8] = -kHuge;
  CorrectionSpec spec;
  spec.drift_source = RatioSource::kCurrentRollout;
  ExpectRefused(spec, rows, {InputRole::kCurrent, 5, 8, false});
  // current - old does not overflow, and nothing reads current - rollout.
  spec.drift_source = RatioSource::kCurrentOld;
  EXPECT_EQ(Correct(spec, OwnedBatch(rows)).result.status, CorrectStatus::kOk);
}

// Weights compare old with rollout, the rule current with rollout: both count
// tokens with a rollout log-prob of NaN, with a log ratio of 0.
TEST_P(NonFiniteNumbers, AnUnknownRolloutIsALogRatioOfZero) {
  std::vector<Row> rows = CleanRows();
  for (Row& row : rows) {
    for (int64_t t = 0; t < row.size(); t += 3) {
      row[InputRole::kRollout][static_cast<size_t>(t)] = kNaN;
    }
  }
  CorrectionSpec spec = WithWeightAndRules(
      {.level = Level::kToken, .bound = Bound::kTruncate, .upper = 1.01},
      {{.source = RatioSource::kCurrentRollout,
        .aggregation = Aggregation::kMean,
        .lower = -0.001,
        .upper = 0.001}});
  spec.unknown_rollout = true;
  const OwnedBatch batch(rows);
  const Corrected corrected = Correct(spec, batch);
  ASSERT_EQ(corrected.result.status, CorrectStatus::kOk);
  EXPECT_EQ(corrected.sums().non_finite_tokens, 14 + 1667 + 100);
  for (size_t t = 0; t < 40; t += 3) EXPECT_EQ(corrected.weights[t], 1.0f);
  EXPECT_TRUE(MatchesReference(spec, corrected, Reference(spec, batch.view())));
  // Other numbers and policies keep their behaviour.
  std::vector<Row> bad = rows;
  bad[0][InputRole::kRollout][1] = kInfinity;
  ExpectRefused(spec, bad, {InputRole::kRollout, 0, 1, true});
  bad = rows;
  bad[2][InputRole::kOld][3] = kNaN;
  ExpectRefused(spec, bad, {InputRole::kOld, 2, 3, true});
  spec.non_finite = NonFinitePolicy::kDrop;
  EXPECT_EQ(Correct(spec, batch).sums().tokens, 5340 - (14 + 1667 + 100));
  spec.non_finite = NonFinitePolicy::kReject;
  spec.unknown_rollout = false;
  ExpectRefused(spec, rows, {InputRole::kRollout, 0, 0, true});
}

TEST_P(NonFiniteNumbers, AdvantagesCountOnlyWhereARuleReadsThem) {
  std::vector<Row> rows = CleanRows();
  rows[0][InputRole::kAdvantages][3] = kNaN;
  EXPECT_EQ(Correct({}, OwnedBatch(rows)).result.status, CorrectStatus::kOk);
  ExpectRefused(
      WithRules({{.condition = Condition::kNegativeAdvantage, .upper = 1}}),
      rows, {InputRole::kAdvantages, 0, 3, true});
}

TEST_P(NonFiniteNumbers, TensorsThatNothingReadsAreNotSeen) {
  std::vector<Row> rows = CleanRows();
  rows[0][InputRole::kCurrent][3] = kNaN;
  EXPECT_EQ(Correct({}, OwnedBatch(rows)).result.status, CorrectStatus::kOk);
}

// A row in which token 1 is bad.
Row BadRow() {
  Row row = RowOf({0.5f, 0.25f, 1});
  row[InputRole::kRollout][1] = kNaN;
  return row;
}

TEST_P(NonFiniteNumbers, DropIsMaskZeroWithAReason) {
  CorrectionSpec spec =
      WithWeightAndRules({.level = Level::kToken}, {{.upper = 0.75}});
  spec.non_finite = NonFinitePolicy::kDrop;
  const Corrected corrected = Correct(spec, OwnedBatch({BadRow()}));
  EXPECT_EQ(corrected.weights[1], 0.0f);
  EXPECT_EQ(corrected.keep_mask, std::vector<uint8_t>({1, 0, 0}));
  EXPECT_EQ(corrected.token_reasons,
            std::vector<uint16_t>({0, kReasonNonFinite, 1}));
  EXPECT_EQ(corrected.sequence_reasons,
            std::vector<uint16_t>({kReasonNonFinite | 1}));
  EXPECT_EQ(corrected.sums().tokens, 2);
  EXPECT_EQ(corrected.sums().non_finite_tokens, 1);
  EXPECT_EQ(corrected.sums().drift.log_ratio, 1.5);
  EXPECT_EQ(corrected.sums().touched_sequences, 1) << "by the rule";
}

TEST_P(NonFiniteNumbers, DropEqualsTheSameBatchMasked) {
  std::vector<Row> dirty = CleanRows(), masked = dirty;
  for (int64_t t : {0, 31, 32, 4095, 4096}) {
    dirty[2][InputRole::kOld][t] = kNaN;
    masked[2].mask[t] = 0;
  }
  CorrectionSpec spec = BusySpec();
  spec.non_finite = NonFinitePolicy::kDrop;
  const Corrected a = Correct(spec, OwnedBatch(dirty)),
                  b = Correct(spec, OwnedBatch(masked));
  EXPECT_TRUE(SameSums(a.sums(), b.sums(), "non_finite_tokens"));
  EXPECT_EQ(a.sums().non_finite_tokens, 5);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.keep_mask, b.keep_mask);
}

TEST_P(NonFiniteNumbers, NeutralizeIsRatioOneAndCounts) {
  CorrectionSpec spec = WithWeight({.level = Level::kToken});
  spec.peer_sums = true;
  spec.non_finite = NonFinitePolicy::kNeutralize;
  const Corrected corrected = Correct(spec, OwnedBatch({BadRow()}));
  EXPECT_EQ(corrected.weights[1], 1.0f);
  EXPECT_EQ(corrected.keep_mask, std::vector<uint8_t>({1, 1, 1}));
  EXPECT_EQ(corrected.token_reasons, std::vector<uint16_t>({0, 0, 0}));
  EXPECT_EQ(corrected.sums().tokens, 3);
  EXPECT_EQ(corrected.sums().non_finite_tokens, 1);
  EXPECT_EQ(corrected.sums().drift.log_ratio, 1.5);
  EXPECT_EQ(corrected.sums().peers.correction.numerator_log_ppl, -0.5);
}

TEST_P(NonFiniteNumbers, NeutralizeReachesEverySource) {
  Row row = RowOf({0.5f});
  row[InputRole::kCurrent] = {kInfinity};
  CorrectionSpec spec = WithWeight(
      {.level = Level::kToken, .source = RatioSource::kCurrentRollout});
  spec.non_finite = NonFinitePolicy::kNeutralize;
  const Corrected corrected = Correct(spec, OwnedBatch({row}));
  EXPECT_EQ(corrected.weights[0], 1.0f);
  EXPECT_EQ(corrected.sums().drift.log_ratio, 0)
      << "old - rollout is 0.5, but the token is neutral";
}

TEST_P(NonFiniteNumbers, NothingBadMeansNoDifferenceBetweenPolicies) {
  const OwnedBatch batch(CleanRows());
  CorrectionSpec spec = BusySpec();
  const Corrected reject = Correct(spec, batch);
  for (NonFinitePolicy policy :
       {NonFinitePolicy::kDrop, NonFinitePolicy::kNeutralize}) {
    spec.non_finite = policy;
    const Corrected other = Correct(spec, batch);
    EXPECT_TRUE(SameOutputs(reject, other));
    EXPECT_TRUE(SameSums(reject.sums(), other.sums()));
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(NonFiniteNumbers);

}  // namespace
}  // namespace counterweight::kernels
