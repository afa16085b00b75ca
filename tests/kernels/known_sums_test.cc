// BatchSums, computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/metrics.h"
#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/specs.h"
#include "tests/testing/sums_fields.h"

namespace counterweight::kernels {
namespace {

using KnownSums = EveryBackend;

// Returns a batch of rows {0.5, masked, -0.25}, {}, {2}.
OwnedBatch ExampleBatch() {
  Row first = RowOf({0.5f, 9, -0.25f});
  first.mask[1] = 0;
  return OwnedBatch({first, RowOf({}), RowOf({2})});
}

TEST_P(KnownSums, CountsOfTheBatch) {
  const BatchSums sums =
      Correct(WithRules({{.upper = 0.25}}), ExampleBatch()).sums();
  EXPECT_EQ(sums.num_sequences, 3);
  EXPECT_EQ(sums.nonempty_sequences, 2);
  EXPECT_EQ(sums.tokens, 3);
  EXPECT_EQ(sums.kept_tokens, 1);
  EXPECT_EQ(sums.kept_sequences, 1);
  EXPECT_EQ(sums.touched_sequences, 2);
  EXPECT_EQ(sums.non_finite_tokens, 0);
}

CorrectionSpec WithPeerSums(CorrectionSpec spec) {
  spec.peer_sums = true;
  return spec;
}

TEST_P(KnownSums, DriftOfTokens) {
  const DriftSums drift = Correct({}, ExampleBatch()).sums().drift;
  EXPECT_EQ(drift.log_ratio, 2.25);
  EXPECT_EQ(drift.abs_log_ratio, 2.75);
  EXPECT_EQ(drift.k2, (0.25 + 0.0625 + 4) / 2);
  // e^0.5 - 1.5, e^-0.25 - 0.75, e^2 - 3
  EXPECT_NEAR(drift.k3, 0.1487212707 + 0.0288007831 + 4.3890560989, 1e-6);
  EXPECT_NEAR(drift.excess, 0.6487212707 - 0.2211992169 + 6.3890560989, 1e-6);
  EXPECT_NEAR(drift.excess_squared, 0.4208392870 + 0.0489290936 + 40.8200378335,
              1e-5);
  EXPECT_EQ(drift.log_ratio_range.min, -0.25);
  EXPECT_EQ(drift.log_ratio_range.max, 2);
}

TEST_P(KnownSums, DriftOfRows) {
  // rollout_log_probs are 0, so b_i = 0, a_i = 0.125 and 2, s_i = 0.25 and 2.
  const BatchSums sums = Correct(WithPeerSums({}), ExampleBatch()).sums();
  const DriftSums& drift = sums.drift;
  const PeerCorrectionSums& peers = sums.peers.correction;
  EXPECT_EQ(peers.numerator_log_ppl, -2.125);
  EXPECT_NEAR(drift.numerator_ppl, 0.8824969026 + 0.1353352832, 1e-9);
  EXPECT_EQ(peers.denominator_log_ppl, 0);
  EXPECT_EQ(drift.denominator_ppl, 2);
  EXPECT_EQ(drift.log_ppl_difference, -2.125);
  EXPECT_EQ(drift.abs_log_ppl_difference, 2.125);
  EXPECT_NEAR(drift.ppl_ratio_excess, -0.1175030974 - 0.8646647168, 1e-9);
  EXPECT_NEAR(drift.chi2_sequence, 0.6487212707 + 53.5981500331, 1e-8);
  EXPECT_EQ(peers.log_ppl_difference_range.min, -2);
  EXPECT_EQ(peers.log_ppl_difference_range.max, -0.125);
  EXPECT_EQ(drift.sequence_log_ratio_range.min, 0.25);
  EXPECT_EQ(drift.sequence_log_ratio_range.max, 2);
}

TEST_P(KnownSums, HistogramEdgesBelongToTheBucketBelow) {
  std::vector<float> edges(std::begin(kHistogramEdges),
                           std::end(kHistogramEdges));
  std::vector<Row> rows;
  for (float edge : edges) rows.push_back(RowOf({edge}));
  rows.push_back(RowOf({std::nextafter(1.0f, 2.0f)}));
  const DriftSums drift = Correct({}, OwnedBatch(rows)).sums().drift;
  for (int b = 0; b <= kNumHistogramEdges; ++b) {
    EXPECT_EQ(drift.histogram[b], 1) << b;
    EXPECT_EQ(drift.sequence_histogram[b], 1) << b;
  }
}

// Rows of several segments, so that lanes count as many tokens as possible.
TEST_P(KnownSums, TheHistogramCountsBothSidesOfManyTokens) {
  constexpr int kTokens = 10000;
  const float below_edge = std::nextafter(-0.03f, -1.0f);
  const float above_edge = std::nextafter(-0.03f, 0.0f);
  const float kinds[] = {-2.0f, 2.0f, below_edge, above_edge, -0.0f, 99.0f};
  std::vector<Row> rows;
  for (const float l : kinds) {
    rows.push_back(RowOf(std::vector<float>(kTokens, l)));
  }
  rows[5].mask.assign(kTokens, 0);
  rows.push_back(RowOf({}));
  for (int t = 0; t < kTokens; ++t) {
    rows[6].mask.push_back(t % 3 != 0);
    rows[6][InputRole::kRollout].push_back(0.0f);
    rows[6][InputRole::kOld].push_back(t % 3 == 1 ? -0.2f : 0.2f);
  }
  const DriftSums drift = Correct({}, OwnedBatch(rows)).sums().drift;
  const int64_t expected[] = {kTokens, 0, 3333, kTokens, kTokens, kTokens,
                              0,       0, 3333, 0,       kTokens};
  for (int b = 0; b <= kNumHistogramEdges; ++b) {
    EXPECT_EQ(drift.histogram[b], expected[b]) << b;
  }
}

TEST_P(KnownSums, Probabilities) {
  CorrectionSpec spec;
  spec.peer_sums = true;
  Row row = RowOf({std::log(0.5f), std::log(0.25f)});
  row[InputRole::kRollout] = {std::log(0.25f), std::log(0.75f)};
  const ProbabilitySums p =
      Correct(spec, OwnedBatch({row})).sums().peers.correction.probability;
  EXPECT_NEAR(p.abs_difference, 0.75, 1e-6);
  EXPECT_NEAR(p.squared_difference, 0.3125, 1e-6);
  EXPECT_NEAR(p.max_difference, 0.5, 1e-6);
  EXPECT_NEAR(p.p, 0.75, 1e-6);
  EXPECT_NEAR(p.q, 1, 1e-6);
  EXPECT_NEAR(p.p_squared, 0.3125, 1e-6);
  EXPECT_NEAR(p.q_squared, 0.625, 1e-6);
  EXPECT_NEAR(p.p_q, 0.3125, 1e-6);
}

TEST_P(KnownSums, WeightsOfTokens) {
  const WeightSpec weight{
      .level = Level::kToken, .bound = Bound::kTruncate, .upper = 1.5};
  const BatchSums all = Correct(WithPeerSums(WithWeight(weight)),
                                OwnedBatch({RowOf({1, 0}), RowOf({-1})}))
                            .sums();
  const WeightSums& sums = all.weight;
  const PeerCorrectionSums& peers = all.peers.correction;
  EXPECT_NEAR(sums.weight, 1.5 + 1 + 0.3678794412, 1e-6);
  EXPECT_NEAR(sums.weight_squared, 2.25 + 1 + 0.1353352832, 1e-6);
  EXPECT_NEAR(sums.excess, 0.5 - 0.6321205588, 1e-6);
  EXPECT_NEAR(sums.excess_squared, 0.25 + 0.3995764009, 1e-6);
  EXPECT_EQ(sums.range.max, 1.5);
  EXPECT_EQ(sums.tokens_high, 1);
  EXPECT_EQ(sums.tokens_low, 1) << "against 1 / upper";
  EXPECT_EQ(sums.tokens_outside, 1) << "there is no lower bound";
  EXPECT_EQ(peers.sequences_high, 1) << "mean raw weight (e + 1) / 2";
  EXPECT_EQ(peers.sequences_low, 1);
  EXPECT_NEAR(sums.sequence_excess, 0.25 - 0.6321205588, 1e-6);
  EXPECT_NEAR(peers.sequence_excess_squared, 0.0625 + 0.3995764009, 1e-6);
  EXPECT_EQ(sums.sequence_range.max, 1.25);
  EXPECT_EQ(sums.normalizer, 1);
}

TEST_P(KnownSums, WeightsOfSequences) {
  const WeightSpec weight{.level = Level::kSequence,
                          .bound = Bound::kMask,
                          .lower = 0.5,
                          .upper = 2,
                          .normalize = true};
  const BatchSums all =
      Correct(WithPeerSums(WithWeight(weight)),
              OwnedBatch({RowOf({1, 1}), RowOf({0.25f}), RowOf({-1})}))
          .sums();
  const WeightSums& sums = all.weight;
  const PeerCorrectionSums& peers = all.peers.correction;
  EXPECT_NEAR(sums.weight, 1.2840254167, 1e-6);
  EXPECT_EQ(sums.tokens_high, 2);
  EXPECT_EQ(sums.tokens_low, 1);
  EXPECT_EQ(sums.tokens_outside, 3);
  EXPECT_EQ(peers.sequences_high, 1);
  EXPECT_EQ(peers.sequences_low, 1);
  EXPECT_EQ(sums.sequences_log_high, 1);
  EXPECT_EQ(peers.sequences_log_low, 1);
  EXPECT_EQ(peers.sequence_log_range.min, -1);
  EXPECT_EQ(peers.sequence_log_range.max, 2);
  EXPECT_NEAR(sums.normalizer, 1.2840254167 / 3, 1e-6);
}

// Rows {1, 0}, {-1} and {3}, of weights {1.5, 1}, {0.5} and {1.5}.
constexpr WeightSpec kBounded{.level = Level::kToken,
                              .bound = Bound::kTruncate,
                              .lower = 0.5,
                              .upper = 1.5};
OwnedBatch BoundedBatch() {
  return OwnedBatch({RowOf({1, 0}), RowOf({-1}), RowOf({3})});
}

double KeptSampleSize(const CorrectionSpec& spec, const BatchSums& sums) {
  return Metrics(spec, {"a", "b"}, sums).at("kept_effective_sample_size");
}

TEST_P(KnownSums, WeightsThatNoRuleDropsOrZeroes) {
  const RejectionRule token{.lower = -0.5, .upper = 2};
  RejectionRule zeroing = token;
  zeroing.effect = Effect::kZeroWeight;
  const RejectionRule sequence{.aggregation = Aggregation::kSum, .upper = 2};
  for (const RejectionRule& rule : {token, zeroing}) {
    const CorrectionSpec spec = WithWeightAndRules(kBounded, {rule});
    const BatchSums sums = Correct(spec, BoundedBatch()).sums();
    EXPECT_EQ(sums.weight.kept_weight, 2.5);
    EXPECT_EQ(sums.weight.kept_weight_squared, 3.25);
    EXPECT_DOUBLE_EQ(KeptSampleSize(spec, sums), 6.25 / (4 * 3.25));
  }
  const CorrectionSpec rows = WithWeightAndRules(kBounded, {sequence});
  const BatchSums of_rows = Correct(rows, BoundedBatch()).sums();
  EXPECT_EQ(of_rows.weight.kept_weight, 3);
  EXPECT_EQ(of_rows.weight.kept_weight_squared, 3.5);
  const CorrectionSpec both = WithWeightAndRules(kBounded, {zeroing, sequence});
  const BatchSums of_both = Correct(both, BoundedBatch()).sums();
  EXPECT_EQ(of_both.weight.kept_weight, 2.5);
}

TEST_P(KnownSums, WeightsOfSequencesThatNoRuleDropsOrZeroes) {
  WeightSpec weight = kBounded;
  weight.level = Level::kSequence;
  const RejectionRule token{.upper = 0.5};
  RejectionRule zeroing = token;
  zeroing.effect = Effect::kZeroWeight;
  // The first row has the weight 1.5 and loses a token.
  for (const RejectionRule& rule : {token, zeroing}) {
    const BatchSums sums =
        Correct(WithWeightAndRules(weight, {rule}), BoundedBatch()).sums();
    EXPECT_EQ(sums.weight.kept_weight, 1.5 + 0.5);
    EXPECT_EQ(sums.weight.kept_weight_squared, 2.25 + 0.25);
  }
}

TEST_P(KnownSums, WeightsOfNoTokenThatIsLeft) {
  WeightSpec infinite{.level = Level::kSequence};
  infinite.aggregate_clamp = infinite.token_clamp = kUnbounded;
  const CorrectionSpec spec = WithWeightAndRules(infinite, {{.upper = -1e9}});
  const BatchSums sums =
      Correct(spec, OwnedBatch({RowOf({1000, 0}), RowOf({1})})).sums();
  EXPECT_EQ(sums.weight.weight, kUnbounded);
  EXPECT_EQ(sums.weight.kept_weight, 0);
  EXPECT_EQ(KeptSampleSize(spec, sums), 0);
}

TEST_P(KnownSums, TokenRule) {
  const RejectionRule rule{.lower = -0.5, .upper = 1};
  const BatchSums all = Correct(WithPeerSums(WithRules({rule})),
                                OwnedBatch({RowOf({2, 0.5f}), RowOf({-1, -1})}))
                            .sums();
  const RuleSums& sums = all.rules[0];
  const PeerRuleSums& peers = all.peers.correction.rules[0];
  EXPECT_EQ(sums.seen_tokens, 4);
  EXPECT_EQ(sums.seen_sequences, 2);
  EXPECT_EQ(sums.tokens_high, 1);
  EXPECT_EQ(sums.tokens_low, 2);
  EXPECT_EQ(sums.rows_high, 1) << "row mean 1.25";
  EXPECT_EQ(sums.rows_low, 1);
  EXPECT_EQ(sums.sum, 0.5);
  EXPECT_EQ(peers.clamped, 0.5);
  EXPECT_EQ(peers.clamped_squared, 1.75);
  EXPECT_EQ(sums.range.min, -1);
  EXPECT_EQ(sums.range.max, 2);
  EXPECT_EQ(sums.row_sum, 0.25);
  EXPECT_EQ(peers.row_squared, 1.25 * 1.25 + 1);
  EXPECT_EQ(peers.row_range.max, 1.25);
  EXPECT_EQ(sums.dropped_tokens, 3);
  EXPECT_EQ(sums.dropped_sequences, 2);
}

TEST_P(KnownSums, TokenRulesOfRatiosRangeOverClampedOnes) {
  Row row = RowOf({1, -3, 99});
  row.mask[2] = 0;
  RejectionRule rule;
  rule.token_clamp = 2;
  RejectionRule early;
  early.lower = -2.5;
  for (const Evaluation evaluation :
       {Evaluation::kParallel, Evaluation::kSequential}) {
    CorrectionSpec spec = WithRules({early, rule});
    spec.evaluation = evaluation;
    const bool sequential = evaluation == Evaluation::kSequential;
    const BatchSums sums = Correct(spec, OwnedBatch({row, RowOf({})})).sums();
    EXPECT_EQ(sums.rules[0].range.min, -3);
    EXPECT_EQ(sums.rules[0].range.max, 1);
    EXPECT_EQ(sums.rules[1].range.min, sequential ? 1 : -2);
    EXPECT_EQ(sums.rules[1].range.max, 1);
  }
}

// 0.1 lies between two float32 numbers, as does the log ratio.
TEST_P(KnownSums, ExactLogRatiosStopAtTheClampItself) {
  Row row = RowOf({0.1f});
  row[InputRole::kRollout] = {1e-9f};
  const double l = static_cast<double>(0.1f) - static_cast<double>(1e-9f);
  for (const double clamp : {0.1, 0.0999999, 0.2}) {
    const RejectionRule rule{.aggregation = Aggregation::kMean,
                             .token_clamp = clamp};
    const BatchSums sums = Correct(WithRules({rule}), OwnedBatch({row})).sums();
    EXPECT_GT(l, 0.1);
    EXPECT_EQ(sums.rules[0].row_sum, std::min(l, clamp)) << clamp;
  }
}

TEST_P(KnownSums, SequenceRule) {
  const RejectionRule rule{
      .aggregation = Aggregation::kSum, .lower = -0.5, .upper = 1};
  const BatchSums all =
      Correct(WithPeerSums(WithRules({rule})),
              OwnedBatch({RowOf({2, 0.5f}), RowOf({-1}), RowOf({})}))
          .sums();
  const RuleSums& sums = all.rules[0];
  const PeerRuleSums& peers = all.peers.correction.rules[0];
  EXPECT_EQ(sums.seen_tokens, 3);
  EXPECT_EQ(sums.seen_sequences, 2);
  EXPECT_EQ(sums.tokens_high, 2);
  EXPECT_EQ(sums.tokens_low, 1);
  EXPECT_EQ(sums.rows_high, 1);
  EXPECT_EQ(sums.rows_low, 1);
  EXPECT_EQ(sums.sum, 4);
  EXPECT_EQ(peers.clamped, 1.5);
  EXPECT_EQ(sums.range.max, 2.5);
  EXPECT_EQ(sums.row_sum, 1.5);
  EXPECT_EQ(peers.row_squared, 7.25);
  EXPECT_EQ(peers.row_range.min, -1);
}

TEST_P(KnownSums, NothingAddsUpToNothing) {
  Row masked = RowOf({5, 6});
  masked.mask = {0, 0};
  for (const std::vector<Row>& rows :
       {std::vector<Row>{}, {RowOf({})}, {masked, RowOf({}), masked}}) {
    CorrectionSpec spec = WithWeightAndRules(
        {.level = Level::kGeometric,
         .bound = Bound::kTruncate,
         .upper = 2,
         .normalize = true},
        {{.upper = 1}, {.aggregation = Aggregation::kMax, .upper = 1}});
    spec.peer_sums = true;
    const BatchSums sums = Correct(spec, OwnedBatch(rows)).sums();
    EXPECT_EQ(sums.num_sequences, static_cast<int64_t>(rows.size()));
    for (const SumsField& field : Fields(sums, spec.num_rules)) {
      if (field.name == "num_sequences") continue;
      double nothing = field.name == "weight.normalizer" ? 1 : 0;
      if (field.fold == Fold::kMin) nothing = kUnbounded;
      if (field.fold == Fold::kMax &&
          field.name != "peers.probability.max_difference")
        nothing = -kUnbounded;
      EXPECT_EQ(field.value, nothing) << field.name;
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(KnownSums);

}  // namespace
}  // namespace counterweight::kernels
