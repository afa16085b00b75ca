// Lengths around boundaries: lanes of 32, blocks of 256, segments of 4096.
#include <gtest/gtest.h>

#include "kernels/walk/make_plan.h"
#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class Lengths : public EveryBackend {
 protected:
  // The seed must avoid decisions close to their bound.
  void ExpectReference(const CorrectionSpec& spec,
                       const std::vector<Row>& rows) {
    const OwnedBatch batch(rows);
    const ReferenceResult reference = Reference(spec, batch.view());
    if (reference.margin < 1e-6) return;
    compared_ += 1;
    EXPECT_TRUE(MatchesReference(spec, Correct(spec, batch), reference))
        << ToString(spec);
  }

  int compared_ = 0;
};

// Bounds are far from typical statistics, so that few decisions are close.
WeightSpec WideWeight(Level level) {
  return {.level = level,
          .token_clamp = 20,
          .aggregate_clamp = 20,
          .bound = Bound::kTruncate,
          .lower = 0.3,
          .upper = 3};
}

CorrectionSpec WideSpec(Level level) {
  CorrectionSpec spec = WithWeightAndRules(
      WideWeight(level),
      {{.lower = -0.3, .upper = 0.3},
       {.aggregation = Aggregation::kSum, .lower = -40, .upper = 40},
       {.estimator = Estimator::kK3,
        .aggregation = Aggregation::kMean,
        .condition = Condition::kNegativeAdvantage,
        .upper = 0.0048},
       {.estimator = Estimator::kK2,
        .aggregation = Aggregation::kPrefixMean,
        .upper = 0.01}});
  spec.evaluation = Evaluation::kSequential;
  spec.weight.after_rule = level == Level::kToken ? 0 : 1;
  return spec;
}

TEST_P(Lengths, EachSeamAloneMatchesTheReference) {
  for (int64_t length :
       {1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 8192, 8193}) {
    for (Level level :
         {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
      for (uint64_t attempt = 0; compared_ == 0 && attempt < 20; ++attempt) {
        Random random(static_cast<uint64_t>(length) * 100 + attempt);
        ExpectReference(WideSpec(level), {RandomRow(random, length)});
      }
      EXPECT_EQ(compared_, 1)
          << "every seed is a close call at length " << length;
      compared_ = 0;
    }
  }
}

// Running means of later segments start from sums of the earlier ones, which
// outputs need where metrics do not.
TEST_P(Lengths, LaterSegmentsNeedNoMetrics) {
  Random random(9);
  const OwnedBatch batch({RandomRow(random, 9000)});
  for (const Estimator estimator : {Estimator::kRatio, Estimator::kK2}) {
    for (const Evaluation evaluation :
         {Evaluation::kParallel, Evaluation::kSequential}) {
      CorrectionSpec spec = WithRules({{.upper = 0.2},
                                       {.estimator = estimator,
                                        .aggregation = Aggregation::kPrefixMean,
                                        .upper = 0.02}});
      spec.evaluation = evaluation;
      const Corrected with = Correct(spec, batch);
      spec.metrics = false;
      EXPECT_TRUE(SameOutputs(with, Correct(spec, batch))) << ToString(spec);
      EXPECT_LT(with.sums().kept_tokens, with.sums().tokens);
      EXPECT_GT(with.sums().kept_tokens, 0);
    }
  }
}

TEST_P(Lengths, SeventyThousandTokensBetweenShortRows) {
  for (uint64_t seed = 1; compared_ == 0 && seed < 20; ++seed) {
    Random random(seed);
    ExpectReference(WideSpec(Level::kGeometric),
                    RandomRows(random, {3, 70000, 0, 17}));
  }
  EXPECT_EQ(compared_, 1);
}

// Their segments are cut up between threads, and written while the sums are
// not known: again where the rule for whole rows fires.
TEST_P(Lengths, SeventyThousandTokensInOneWalk) {
  for (const double upper : {0.0048, 1.0}) {
    CorrectionSpec spec = WithWeightAndRules(
        WideWeight(Level::kToken), {{.lower = -0.3, .upper = 0.3},
                                    {.estimator = Estimator::kK3,
                                     .aggregation = Aggregation::kMean,
                                     .upper = upper}});
    ASSERT_TRUE(MakePlan(spec).speculates);
    compared_ = 0;
    for (uint64_t seed = 1; compared_ == 0 && seed < 20; ++seed) {
      Random random(seed);
      const std::vector<Row> rows = RandomRows(random, {3, 70000, 0, 17});
      ExpectReference(spec, rows);
      spec.num_rules = 0;
      ASSERT_TRUE(MakePlan(spec).single_pass);
      ExpectReference(spec, rows);
      spec.num_rules = 2;
    }
    EXPECT_GE(compared_, 1);
  }
}

TEST_P(Lengths, AllMaskedRowsOfAnyLength) {
  Random random(5);
  const std::vector<Row> rows =
      RandomRows(random, {1, 32, 300, 4096, 9000}, {.masked = 1});
  for (Level level :
       {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix})
    ExpectReference(WideSpec(level), rows);
  EXPECT_EQ(compared_, 4);
}

TEST_P(Lengths, NoSequencesAtAll) {
  const Corrected corrected = Correct(WideSpec(Level::kToken), OwnedBatch({}));
  EXPECT_EQ(corrected.result.status, CorrectStatus::kOk);
  EXPECT_EQ(corrected.sums().num_sequences, 0);
}

TEST_P(Lengths, AMillionTokens) {
  if (GetParam().threads == 2) GTEST_SKIP() << "1 and 7 threads tell enough";
  Random random(6);
  Row row = RandomRow(random, 1000000, {.spread = 0.01});
  const OwnedBatch batch({row});
  const CorrectionSpec spec = WideSpec(Level::kPrefix);
  const Corrected corrected = Correct(spec, batch);
  const Corrected base = RunCorrector(BaseCorrector(), spec, batch);
  EXPECT_TRUE(SameOutputs(corrected, base));
  EXPECT_TRUE(SameSums(corrected.sums(), base.sums()));
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t t = 0; t < row.size(); ++t) {
    if (row.mask[t] == 0) continue;
    tokens += 1;
    sum += static_cast<double>(row[InputRole::kOld][t]) -
           static_cast<double>(row[InputRole::kRollout][t]);
  }
  EXPECT_EQ(corrected.sums().tokens, tokens);
  EXPECT_NEAR(corrected.sums().drift.log_ratio, sum,
              1e-12 * corrected.sums().drift.abs_log_ratio);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Lengths);

}  // namespace
}  // namespace counterweight::kernels
