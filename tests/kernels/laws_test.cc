// Laws that hold for every batch.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/averages.h"
#include "kernels/metrics.h"
#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using Laws = EveryBackend;

TEST_P(Laws, EqualPoliciesHaveWeightOneAndNoDrift) {
  Random random(1);
  std::vector<Row> rows = RandomRows(random, {1, 7, 300, 5000}, {.masked = 0});
  for (Row& row : rows)
    row[InputRole::kOld] = row[InputRole::kCurrent] = row[InputRole::kRollout];
  const OwnedBatch batch(rows);
  for (Level level :
       {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
    CorrectionSpec spec = WithWeightAndRules(
        {.level = level,
         .bound = Bound::kMask,
         .lower = 1,
         .upper = 1,
         .normalize = true},
        {{.lower = 0, .upper = 0},
         {.aggregation = Aggregation::kMean, .lower = 0, .upper = 0},
         {.estimator = Estimator::kK3,
          .aggregation = Aggregation::kMax,
          .upper = 0},
         {.estimator = Estimator::kK2,
          .aggregation = Aggregation::kPrefixMean,
          .upper = 0}});
    spec.peer_sums = true;
    const Corrected corrected = Correct(spec, batch);
    EXPECT_EQ(corrected.weights,
              std::vector<float>(batch.num_positions(), 1.0f))
        << Name(level);
    const BatchSums& sums = corrected.sums();
    EXPECT_EQ(sums.kept_tokens, sums.tokens);
    EXPECT_EQ(sums.drift.log_ratio, 0);
    EXPECT_EQ(sums.drift.k3, 0);
    EXPECT_EQ(sums.drift.excess, 0);
    EXPECT_EQ(sums.drift.excess_squared, 0);
    EXPECT_EQ(sums.drift.chi2_sequence, 0);
    EXPECT_EQ(sums.drift.ppl_ratio_excess, 0);
    EXPECT_EQ(sums.drift.numerator_ppl, sums.drift.denominator_ppl);
    EXPECT_EQ(sums.peers.correction.probability.abs_difference, 0);
    // Effective sample size 1: (sum w)^2 = n sum w^2.
    EXPECT_EQ(sums.weight.weight, sums.tokens);
    EXPECT_EQ(sums.weight.weight_squared, sums.tokens);
    EXPECT_EQ(sums.weight.excess, 0);
    EXPECT_EQ(sums.weight.excess_squared, 0);
    EXPECT_EQ(sums.weight.normalizer, 1);
  }
}

// Rules that drop nothing leave the sample size as it is, those that drop leave
// at most the share of tokens that they keep.
TEST_P(Laws, TheKeptSampleSizeIsAtMostWhatIsKept) {
  Random random(12);
  const OwnedBatch batch(
      RandomRows(random, {1, 7, 300, 5000}, {.spread = 0.5}));
  for (const Level level :
       {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
    for (const Aggregation aggregation :
         {Aggregation::kToken, Aggregation::kMean, Aggregation::kPrefixMean}) {
      for (const double upper : {1e6, 0.3, 0.01}) {
        const CorrectionSpec spec = WithWeightAndRules(
            {.level = level, .aggregate_clamp = 20},
            {{.aggregation = aggregation, .lower = -upper, .upper = upper}});
        const BatchSums sums = Correct(spec, batch).sums();
        const double kept =
            SampleShare(sums.weight.kept_weight,
                        sums.weight.kept_weight_squared, sums.tokens);
        if (sums.kept_tokens == sums.tokens) {
          EXPECT_EQ(kept, Summarize(sums).effective_sample_size);
        } else {
          EXPECT_LE(kept, Fraction(sums.kept_tokens, sums.tokens) + 1e-12);
          EXPECT_EQ(kept > 0, sums.kept_tokens > 0);
        }
      }
    }
  }
}

TEST_P(Laws, K3IsNeverNegative) {
  const CorrectionSpec spec =
      WithRules({{.estimator = Estimator::kK3, .lower = 0}});
  Random random(2);
  for (double spread : {1e-7, 1e-5, 1e-4, 1e-2, 1.0, 5.0}) {
    const Corrected corrected = Correct(
        spec, OwnedBatch({RandomRow(random, 20000, {.spread = spread})}));
    EXPECT_EQ(corrected.sums().rules[0].tokens_low, 0) << spread;
    EXPECT_GE(corrected.sums().rules[0].range.min, 0) << spread;
    EXPECT_EQ(corrected.sums().kept_tokens, corrected.sums().tokens) << spread;
  }
}

TEST_P(Laws, WhatIsMaskedChangesNoByte) {
  Random random(3);
  const std::vector<Row> clean =
      RandomRows(random, {5, 40, 600, 4200}, {.masked = 0.4});
  std::vector<Row> dirty = clean;
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), -3e38f};
  for (Row& row : dirty)
    for (std::vector<float>& values : row.values)
      for (size_t t = 0; t < values.size(); ++t)
        if (row.mask[t] == 0) values[t] = kBad[random.Integer(0, 2)];
  for (Evaluation evaluation :
       {Evaluation::kParallel, Evaluation::kSequential}) {
    CorrectionSpec spec = BusySpec();
    spec.evaluation = evaluation;
    const Corrected a = Correct(spec, OwnedBatch(clean)),
                    b = Correct(spec, OwnedBatch(dirty));
    ASSERT_EQ(b.result.status, CorrectStatus::kOk);
    EXPECT_TRUE(SameOutputs(a, b));
    EXPECT_TRUE(SameSums(a.sums(), b.sums()));
  }
}

TEST_P(Laws, AnyNonZeroMaskByteCountsAsOne) {
  Random random(4);
  const std::vector<Row> ones = RandomRows(random, {300, 10});
  std::vector<Row> others = ones;
  for (Row& row : others)
    for (uint8_t& m : row.mask)
      m = m == 0 ? 0 : static_cast<uint8_t>(random.Integer(2, 255));
  const Corrected a = Correct(BusySpec(), OwnedBatch(ones)),
                  b = Correct(BusySpec(), OwnedBatch(others));
  EXPECT_TRUE(SameOutputs(a, b));
  EXPECT_TRUE(SameSums(a.sums(), b.sums()));
}

TEST_P(Laws, OutputsThatAreNotWantedChangeNothing) {
  Random random(5);
  const OwnedBatch batch(RandomRows(random, {300, 10, 5000}));
  const Corrected all = Correct(BusySpec(), batch);
  for (int only = 0; only < 5; ++only) {
    Corrected one = all;
    one.weights.assign(one.weights.size(), -1.0f);
    one.keep_mask.assign(one.keep_mask.size(), 9);
    one.token_reasons.assign(one.token_reasons.size(), 9);
    one.sequence_reasons.assign(one.sequence_reasons.size(), 9);
    Outputs outputs;
    if (only == 0) outputs.weights = one.weights.data();
    if (only == 1) outputs.keep_mask = one.keep_mask.data();
    if (only == 2) outputs.token_reasons = one.token_reasons.data();
    if (only == 3) outputs.sequence_reasons = one.sequence_reasons.data();
    const CorrectResult result =
        corrector_->Correct(BusySpec(), batch.view(), outputs);
    EXPECT_TRUE(SameSums(result.sums, all.sums()));
    if (only == 0) {
      EXPECT_EQ(one.weights, all.weights);
    }
    if (only == 1) {
      EXPECT_EQ(one.keep_mask, all.keep_mask);
    }
    if (only == 2) {
      EXPECT_EQ(one.token_reasons, all.token_reasons);
    }
    if (only == 3) {
      EXPECT_EQ(one.sequence_reasons, all.sequence_reasons);
    }
  }
}

// Processors make NaNs of different bits; what is infinite cancels to one.
TEST_P(Laws, EveryNanOfTheSumsIsTheCanonicalOne) {
  CorrectionSpec spec = BusySpec();
  spec.peer_sums = true;
  const std::vector<float> far = {100.0f, -200.0f, 3e38f, -3e38f};
  std::vector<Row> rows;
  for (const float a : far) {
    for (const float b : far) {
      Row row = RowOf({0.0f, 0.0f, 0.1f});
      row[InputRole::kOld] = {a, b, -1.0f};
      row[InputRole::kRollout] = {b, b, -1.1f};
      row[InputRole::kCurrent] = {a, a, -1.0f};
      row[InputRole::kAdvantages] = {1.0f, -1.0f, -1.0f};
      rows.push_back(row);
    }
  }
  int nans = 0;
  for (const NonFinitePolicy policy :
       {NonFinitePolicy::kDrop, NonFinitePolicy::kNeutralize}) {
    spec.non_finite = policy;
    const Corrected corrected = Correct(spec, OwnedBatch(rows));
    ASSERT_EQ(corrected.result.status, CorrectStatus::kOk);
    // All members are 8 bytes long, and no count has the bits of a NaN.
    for (size_t i = 0; i < sizeof(BatchSums); i += sizeof(double)) {
      const char* at = reinterpret_cast<const char*>(&corrected.sums()) + i;
      double value = 0.0;
      uint64_t bits = 0;
      std::memcpy(&value, at, sizeof(value));
      std::memcpy(&bits, at, sizeof(bits));
      if (value == value) continue;
      EXPECT_EQ(bits, 0x7ff8000000000000u) << "byte " << i;
      ++nans;
    }
  }
  EXPECT_GT(nans, 0);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Laws);

}  // namespace
}  // namespace counterweight::kernels
