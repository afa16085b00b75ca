// PARALLEL, SEQUENTIAL and after_rule: the mask of each part.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/backends.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using EvaluationOrder = EveryBackend;
using Mask = std::vector<uint8_t>;

// The first rule drops the outlier 4; the second tests the mean of the rest,
// 0.25, or of all, 1.5.
CorrectionSpec OutlierThenMean(Evaluation evaluation) {
  CorrectionSpec spec = WithRules(
      {{.upper = 2}, {.aggregation = Aggregation::kMean, .upper = 0.5}});
  spec.evaluation = evaluation;
  return spec;
}

TEST_P(EvaluationOrder, ParallelRulesSeeTheResponseMask) {
  const Corrected corrected = Correct(OutlierThenMean(Evaluation::kParallel),
                                      OwnedBatch({RowOf({0.25f, 4, 0.25f})}));
  EXPECT_EQ(corrected.keep_mask, Mask({0, 0, 0}));
  EXPECT_EQ(corrected.token_reasons, std::vector<uint16_t>({2, 3, 2}));
}

TEST_P(EvaluationOrder, SequentialRulesSeeWhatEarlierRulesLeft) {
  const Corrected corrected = Correct(OutlierThenMean(Evaluation::kSequential),
                                      OwnedBatch({RowOf({0.25f, 4, 0.25f})}));
  EXPECT_EQ(corrected.keep_mask, Mask({1, 0, 1}));
  EXPECT_EQ(corrected.token_reasons, std::vector<uint16_t>({0, 1, 0}));
  EXPECT_EQ(corrected.sums().rules[1].seen_tokens, 2);
}

TEST_P(EvaluationOrder, ZeroWeightHidesNothingFromLaterRules) {
  CorrectionSpec spec = OutlierThenMean(Evaluation::kSequential);
  spec.weight.level = Level::kToken;
  spec.rules[0].effect = Effect::kZeroWeight;
  const Corrected corrected =
      Correct(spec, OwnedBatch({RowOf({0.25f, 4, 0.25f})}));
  EXPECT_EQ(corrected.keep_mask, Mask({0, 0, 0}));
  EXPECT_EQ(corrected.weights[1], 0.0f);
}

TEST_P(EvaluationOrder, ARowThatARuleEmptiedIsNotSeenByTheNext) {
  CorrectionSpec spec =
      WithRules({{.aggregation = Aggregation::kSum, .upper = 1},
                 {.upper = 0.5},
                 {.aggregation = Aggregation::kMean, .upper = 0.5}});
  spec.evaluation = Evaluation::kSequential;
  const Corrected corrected =
      Correct(spec, OwnedBatch({RowOf({2, 1}), RowOf({0.75f, 0})}));
  EXPECT_EQ(corrected.token_reasons, std::vector<uint16_t>({1, 1, 2, 0}));
  EXPECT_EQ(corrected.sums().rules[1].seen_sequences, 1);
  EXPECT_EQ(corrected.sums().rules[2].seen_tokens, 1);
  EXPECT_EQ(corrected.sums().rules[2].row_sum, 0);
}

TEST_P(EvaluationOrder, AggregatedWeightsSeeTheMaskAfterARule) {
  const Row row = RowOf({0.25f, 4, 0.75f});
  const RejectionRule outlier{.upper = 2};
  const std::pair<Level, std::vector<double>> cases[] = {
      {Level::kSequence, {1, 1, 1}},
      {Level::kGeometric, {0.5, 0.5, 0.5}},
      {Level::kPrefix, {0.25, 0.25, 0.5}}};
  for (const auto& [level, logs] : cases) {
    const Corrected corrected = Correct(
        WithWeightAndRules({.level = level, .after_rule = 1}, {outlier}),
        OwnedBatch({row}));
    for (int t = 0; t < 3; ++t)
      EXPECT_FLOAT_EQ(corrected.weights[t],
                      static_cast<float>(std::exp(logs[t])))
          << Name(level) << t;
  }
}

TEST_P(EvaluationOrder, AfterRuleCountsTheRules) {
  const Row row = RowOf({0.25f, 4, -0.75f});
  const double sums[] = {3.5, -0.5, 0.25};
  for (int n = 0; n <= 2; ++n) {
    const Corrected corrected =
        Correct(WithWeightAndRules({.level = Level::kSequence, .after_rule = n},
                                   {{.upper = 2}, {.lower = -0.5}}),
                OwnedBatch({row}));
    EXPECT_FLOAT_EQ(corrected.weights[0], static_cast<float>(std::exp(sums[n])))
        << n;
  }
}

TEST_P(EvaluationOrder, AnEmptiedRowHasWeightOne) {
  for (Level level : {Level::kSequence, Level::kGeometric, Level::kPrefix}) {
    for (Aggregation aggregation : {Aggregation::kToken, Aggregation::kSum}) {
      const RejectionRule rule{.aggregation = aggregation, .upper = 0.5};
      const WeightSpec weight{
          .level = level, .normalize = true, .after_rule = 1};
      CorrectionSpec spec = WithWeightAndRules(weight, {rule});
      spec.peer_sums = true;
      const Corrected corrected = Correct(spec, OwnedBatch({RowOf({1, 2})}));
      EXPECT_EQ(corrected.weights, std::vector<float>({1, 1})) << Name(level);
      EXPECT_EQ(corrected.keep_mask, Mask({0, 0}));
      EXPECT_EQ(corrected.sums().weight.weight, 2) << Name(level);
      EXPECT_EQ(corrected.sums().weight.range.max, 1) << Name(level);
      if (IsSequenceLevel(level)) {
        EXPECT_EQ(corrected.sums().peers.correction.sequence_log_range.max, 0)
            << Name(level);
      }
      EXPECT_EQ(corrected.sums().weight.normalizer, 1) << Name(level);
    }
  }
}

TEST_P(EvaluationOrder, ZeroWeightReachesOnlyWhatTheRuleSaw) {
  const RejectionRule first_token{.upper = 2};
  const RejectionRule first_row{.aggregation = Aggregation::kSum, .upper = 2};
  for (const RejectionRule& first : {first_token, first_row}) {
    for (Aggregation aggregation : {Aggregation::kToken, Aggregation::kMean,
                                    Aggregation::kMax, Aggregation::kAll}) {
      CorrectionSpec spec = WithWeightAndRules({.level = Level::kToken},
                                               {first,
                                                {.aggregation = aggregation,
                                                 .effect = Effect::kZeroWeight,
                                                 .upper = 0.5}});
      spec.evaluation = Evaluation::kSequential;
      const Corrected corrected = Correct(spec, OwnedBatch({RowOf({4, 1, 1})}));
      int64_t zeroes = 0;
      for (float w : corrected.weights) zeroes += w == 0.0f;
      EXPECT_EQ(zeroes, first.aggregation == Aggregation::kSum ? 0 : 2)
          << Name(aggregation);
      EXPECT_EQ(corrected.sums().zero_weight_tokens, zeroes)
          << Name(aggregation);
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(EvaluationOrder);

}  // namespace
}  // namespace counterweight::kernels
