// The goldens cover the numbers; these tests cover the rest.
#include "server/engine/dialects/trl_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Bound;
using kernels::Level;
using kernels::WeightSpec;
using testing::IsEmpty;
using testing::Key;
using testing::UnorderedElementsAre;

WeightSpec SequenceWeight(Bound bound, double lower, double upper) {
  WeightSpec weight;
  weight.level = Level::kSequence;
  weight.bound = bound;
  weight.lower = lower;
  weight.upper = upper;
  return weight;
}

// Returns the sums of rows with weights 0.5 and 2, and of `empty` rows.
BatchSums TwoRows(int64_t empty) {
  BatchSums sums{};
  sums.num_sequences = 2 + empty;
  sums.nonempty_sequences = 2;
  sums.tokens = 4;
  sums.drift.abs_log_ratio = 3.0;
  sums.drift.log_ratio_range = {-1.5, 1.0};
  sums.weight.sequence_excess = 0.5;
  sums.weight.sequence_range = {0.5, 2.0};
  return sums;
}

MetricMap Sampling(const WeightSpec& weight, const BatchSums& sums) {
  MetricMap metrics;
  AddTrlSamplingMetrics(weight, sums, &metrics);
  EXPECT_EQ(metrics.size(), 5u);
  return metrics;
}

TEST(TrlSamplingMetricsTest, EmptyRowsHaveTheBoundedRatioOne) {
  const struct {
    WeightSpec weight;
    double min, mean, max;
  } kCases[] = {
      {SequenceWeight(Bound::kMask, 0.0, 3.0), 0.5, 3.5 / 3.0, 2.0},
      {SequenceWeight(Bound::kMask, 1.0, 3.0), 0.5, 3.5 / 3.0, 2.0},
      {SequenceWeight(Bound::kMask, 1.5, 3.0), 0.0, 2.5 / 3.0, 2.0},
      {SequenceWeight(Bound::kMask, 0.0, 0.9), 0.0, 2.5 / 3.0, 2.0},
      {SequenceWeight(Bound::kTruncate, 0.0, 0.25), 0.25, 2.75 / 3.0, 2.0},
      {SequenceWeight(Bound::kTruncate, 4.0, 9.0), 0.5, 6.5 / 3.0, 4.0},
      {SequenceWeight(Bound::kNone, 0.0, kernels::kUnbounded), 0.5, 3.5 / 3.0,
       2.0},
  };
  for (const auto& row : kCases) {
    MetricMap metrics = Sampling(row.weight, TwoRows(1));
    const std::string name = "sampling/importance_sampling_ratio/";
    EXPECT_DOUBLE_EQ(metrics[name + "min"], row.min);
    EXPECT_DOUBLE_EQ(metrics[name + "mean"], row.mean);
    EXPECT_DOUBLE_EQ(metrics[name + "max"], row.max);
  }
}

TEST(TrlSamplingMetricsTest, DifferencesAreOfTokens) {
  MetricMap metrics =
      Sampling(SequenceWeight(Bound::kMask, 0.0, 3.0), TwoRows(0));
  EXPECT_EQ(metrics["sampling/sampling_logp_difference/mean"], 0.75);
  EXPECT_EQ(metrics["sampling/sampling_logp_difference/max"], 1.5);
  EXPECT_EQ(metrics["sampling/importance_sampling_ratio/mean"], 1.25);
}

TEST(TrlSamplingMetricsTest, NothingIsZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  BatchSums sums{};
  sums.drift.log_ratio_range = {kInfinity, -kInfinity};
  sums.weight.range = {kInfinity, -kInfinity};
  sums.weight.sequence_range = {kInfinity, -kInfinity};
  WeightSpec weight = SequenceWeight(Bound::kMask, 0.0, 3.0);
  for (const Level level : {Level::kToken, Level::kSequence}) {
    weight.level = level;
    for (const auto& [name, value] : Sampling(weight, sums)) {
      EXPECT_EQ(value, 0.0) << name;
    }
  }
}

// Four rows, one of them empty, nine tokens; half of one row is low.
BatchSums LowRow() {
  BatchSums sums{};
  sums.num_sequences = 4;
  sums.nonempty_sequences = 3;
  sums.tokens = 9;
  sums.loss.low = 2;
  sums.peers.loss.row_low = 0.5;
  sums.peers.loss.row_low_range = {0.0, 0.5};
  sums.loss.high = 3;
  sums.peers.loss.row_high = 1.0;
  sums.peers.loss.row_high_range = {0.0, 1.0};
  return sums;
}

MetricMap LossMetrics(const TrlLoss& loss, const BatchSums& sums,
                      int64_t padded_length = 5) {
  MetricMap metrics;
  AddTrlLossMetrics(loss, padded_length, sums, &metrics);
  return metrics;
}

TEST(TrlLossMetricsTest, TokensAreCountedByTheToken) {
  MetricMap metrics = LossMetrics(TrlLoss(), LowRow());
  EXPECT_EQ(metrics.size(), 5u);
  EXPECT_DOUBLE_EQ(metrics["clip_ratio/low_mean"], 2.0 / 9.0);
  EXPECT_DOUBLE_EQ(metrics["clip_ratio/high_mean"], 3.0 / 9.0);
  EXPECT_DOUBLE_EQ(metrics["clip_ratio/region_mean"], 5.0 / 9.0);
  EXPECT_EQ(metrics["clip_ratio/low_min"], 0.0);
  EXPECT_EQ(metrics["clip_ratio/high_max"], 1.0);
}

TEST(TrlLossMetricsTest, SequencesAreCountedByTheRowEmptyOnesToo) {
  TrlLoss loss;
  loss.sequence_level = true;
  BatchSums sums = LowRow();
  sums.peers.loss.row_low = 3.0;
  sums.peers.loss.row_low_range = {1.0, 1.0};
  MetricMap metrics = LossMetrics(loss, sums);
  EXPECT_EQ(metrics["clip_ratio/low_mean"], 0.75);
  EXPECT_EQ(metrics["clip_ratio/low_min"], 0.0);
  sums.num_sequences = 3;
  metrics = LossMetrics(loss, sums);
  EXPECT_EQ(metrics["clip_ratio/low_mean"], 1.0);
  EXPECT_EQ(metrics["clip_ratio/low_min"], 1.0);
}

TEST(TrlLossMetricsTest, MixedAdvantagesMakeTokensOfSequences) {
  TrlLoss loss;
  loss.sequence_level = true;
  BatchSums sums = LowRow();
  sums.peers.loss.mixed_rows = 1;
  EXPECT_EQ(LossMetrics(loss, sums), LossMetrics(TrlLoss(), LowRow()));
}

TEST(TrlLossMetricsTest, WidthOneCountsMaskedRows) {
  TrlLoss loss;
  loss.beta = 0.1;
  BatchSums sums{};
  sums.num_sequences = 4;
  sums.nonempty_sequences = sums.tokens = sums.loss.kl_tokens = 2;
  sums.loss.kl = 0.5;
  sums.peers.loss.padding_kl = 0.25;
  sums.loss.low = 2;
  sums.peers.loss.padding_low = 2;
  sums.peers.loss.padding_high = 0;
  MetricMap metrics = LossMetrics(loss, sums, 1);
  EXPECT_EQ(metrics["kl"], 0.1875);
  EXPECT_EQ(metrics["clip_ratio/low_mean"], 1.0);
  EXPECT_EQ(metrics["clip_ratio/low_min"], 1.0);
  EXPECT_EQ(metrics["clip_ratio/high_max"], 0.0);
  sums.peers.loss.padding_low = 1;
  sums.peers.loss.padding_high = 1;
  metrics = LossMetrics(loss, sums, 1);
  EXPECT_EQ(metrics["clip_ratio/low_mean"], 0.75);
  EXPECT_EQ(metrics["clip_ratio/low_min"], 0.0);
  EXPECT_EQ(metrics["clip_ratio/high_max"], 1.0);
  EXPECT_EQ(metrics["clip_ratio/region_mean"], 1.0);
}

TEST(TrlLossMetricsTest, WithoutTokensRowsHaveNoShares) {
  BatchSums sums{};
  sums.num_sequences = 2;
  MetricMap metrics = LossMetrics(TrlLoss(), sums);
  EXPECT_EQ(metrics["clip_ratio/low_mean"], 0.0);
  EXPECT_TRUE(std::isnan(metrics["clip_ratio/low_min"]));
  EXPECT_TRUE(std::isnan(metrics["clip_ratio/high_max"]));
}

TEST(TrlLossMetricsTest, EachLossTypeHasItsOwn) {
  TrlLoss loss;
  loss.type = TrlLossType::kSapo;
  EXPECT_THAT(LossMetrics(loss, LowRow()), IsEmpty());
  loss.type = TrlLossType::kCispo;
  MetricMap cispo = LossMetrics(loss, LowRow());
  EXPECT_THAT(cispo, UnorderedElementsAre(Key("cispo_clip_ratio")));
  EXPECT_DOUBLE_EQ(cispo["cispo_clip_ratio"], 3.0 / 9.0);
  loss.type = TrlLossType::kVespo;
  loss.beta = 0.1;
  BatchSums sums = LowRow();
  sums.peers.loss.phi = 6.0;
  sums.loss.kl = 1.0;
  sums.loss.kl_tokens = 8;
  MetricMap vespo = LossMetrics(loss, sums);
  EXPECT_THAT(vespo,
              UnorderedElementsAre(Key("vespo/phi_seq_mean"), Key("kl")));
  EXPECT_EQ(vespo["vespo/phi_seq_mean"], 1.5);
  EXPECT_EQ(vespo["kl"], 0.125);
}

}  // namespace
}  // namespace counterweight::server
