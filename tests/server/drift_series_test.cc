// Counters of a run and of all, and which runs have series.
#include "server/observe/drift_series.h"

#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/codec_publication.h"
#include "tests/server/drift_series_fixture.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;

// A ratio of two of these is what one batch with all tokens would have.
TEST_F(DriftSeriesTest, SumsAddUp) {
  BatchSums sums = TwoTokens();
  // l = 0.5 and 0.25.
  sums.drift.histogram[9] = 1;
  sums.drift.histogram[8] = 1;
  sums.drift.log_ratio = 0.75;
  sums.drift.k3 = 0.25;
  sums.drift.excess = 1;
  sums.drift.excess_squared = 0.5;
  sums.drift.chi2_sequence = 3;
  sums.drift.sequence_histogram[5] = 1;
  sums.drift.ppl_ratio_excess = -0.25;
  sums.weight.weight = 1.5;
  sums.weight.weight_squared = 1.25;
  sums.weight.kept_weight = 1;
  sums.weight.kept_weight_squared = 0.75;
  sums.weight.tokens_high = 1;
  sums.weight.tokens_outside = 2;
  sums.loss.clipped = 1;
  sums.loss.high = 2;
  sums.loss.low = 1;
  sums.loss.log_ratio_kept = -0.5;
  sums.loss.slope = 8;
  sums.loss.slope_clipped = 2;
  sums.loss.slope_rejected = 1;
  sums.loss.kl = 0.125;
  sums.loss.kl_tokens = 2;
  sums.staleness.measured = 1;
  sums.staleness.buckets[5] = {.tokens = 2, .log_ratio = 0.75, .k3 = 0.25};
  kernels::CorrectionSpec spec;
  spec.weight.level = kernels::Level::kToken;
  spec.loss.surrogate = kernels::Surrogate::kPpoClip;
  spec.loss.kl.estimator = kernels::KlEstimator::kK3;
  Publish(sums, "r", spec, 1);
  sums.drift.log_ratio = -0.25;
  sums.drift.histogram[9] = sums.drift.histogram[8] = 0;
  sums.drift.histogram[2] = 2;
  sums.loss.log_ratio_kept = 0.25;
  sums.loss.kl = -0.5;
  Publish(sums, "r", spec, 1);
  const std::map<std::string, double> expected = {
      {"drift_log_ratio_positive_nats", 0.75},
      {"drift_log_ratio_negative_nats", 0.25},
      {"drift_kept_tokens", 2},
      {"drift_ratio_squared_sum", 2 * 4.5},
      {"drift_sequence_ratio_squared_sum", 2 * 4},
      {"drift_ppl_ratio_sum", 2 * 0.75},
      {"drift_weighted_tokens", 4},
      {"drift_weight_sum", 3},
      {"drift_weight_squared_sum", 2.5},
      {"drift_kept_weight_sum", 2},
      {"drift_kept_weight_squared_sum", 1.5},
      {"drift_weight_high_tokens", 2},
      {"drift_weight_outside_tokens", 4},
      {"loss_tokens", 4},
      {"loss_kept_tokens", 2},
      {"loss_clipped_tokens", 2},
      {"loss_clip_high_tokens", 4},
      {"loss_clip_low_tokens", 2},
      {"loss_log_ratio_positive_nats", 0.25},
      {"loss_log_ratio_negative_nats", 0.5},
      {"loss_gradient_sum", 16},
      {"loss_gradient_clipped_sum", 4},
      {"loss_gradient_rejected_sum", 2},
      {"loss_kl_tokens", 4},
      {"loss_kl_positive_nats", 0.125},
      {"loss_kl_negative_nats", 0.5},
      {"drift_staleness_k3_sum_nats", 0.5}};
  for (const auto& [name, value] : expected) {
    const std::string family = "counterweight_" + name + "_total";
    if (name.find("staleness") == std::string::npos) {
      EXPECT_DOUBLE_EQ(Value(family, "r"), value) << family;
    } else {
      EXPECT_DOUBLE_EQ(Values(family)["9+"], value) << family;
    }
  }
}

TEST_F(DriftSeriesTest, WhatABatchLacksHasNoSums) {
  Publish(TwoTokens(), "r");
  EXPECT_EQ(Value("counterweight_drift_log_ratio_positive_nats_total", "r"), 0)
      << "there, so that a difference of both signs has a value";
  for (const char* family : {"counterweight_drift_weighted_tokens_total",
                             "counterweight_loss_tokens_total",
                             "counterweight_loss_kl_tokens_total"}) {
    EXPECT_TRUE(std::isnan(Value(family, "r"))) << family;
  }
}

TEST_F(DriftSeriesTest, HistogramsAddUp) {
  BatchSums sums = TwoTokens();
  sums.drift.histogram[0] = 1;
  sums.drift.histogram[5] = 1;
  sums.drift.log_ratio = -1.5;
  sums.drift.sequence_histogram[1] = 1;
  sums.drift.log_ppl_difference = 0.75;
  Publish(sums, "r");
  Publish(sums, "s");
  const auto tokens =
      Total("counterweight_corrected_token_log_ratio_nats").histogram;
  EXPECT_EQ(tokens.sample_count, 4U);
  EXPECT_DOUBLE_EQ(tokens.sample_sum, -3);
  EXPECT_EQ(tokens.bucket.front().cumulative_count, 2U);
  EXPECT_EQ(tokens.bucket[5].cumulative_count, 4U);
  const auto sequences =
      Total("counterweight_corrected_sequence_log_ratio_nats").histogram;
  EXPECT_EQ(sequences.sample_count, 2U);
  EXPECT_DOUBLE_EQ(sequences.sample_sum, -1.5);
}

TEST_F(DriftSeriesTest, DroppedByRule) {
  rule_names_ = {"mean_k3", "veto"};
  BatchSums sums = TwoTokens();
  sums.rules[1].dropped_tokens = 2;
  sums.rules[1].dropped_sequences = 1;
  Publish(sums, "r");
  Publish(sums, "r");
  EXPECT_EQ(DroppedTokens(),
            (std::map<std::string, double>{{"mean_k3", 0}, {"veto", 4}}));
}

TEST_F(DriftSeriesTest, InventedRuleNamesAreBounded) {
  BatchSums sums = TwoTokens();
  sums.rules[0].dropped_tokens = 1;
  for (int i = 0; i < 1000; ++i) {
    rule_names_ = {"rule_" + std::to_string(i)};
    Publish(sums, "r");
  }
  // The first keep their series.
  rule_names_ = {"rule_0"};
  Publish(sums, "r");
  std::map<std::string, double> expected = {{"other", 968}};
  for (int i = 0; i < 32; ++i) {
    expected["rule_" + std::to_string(i)] = i == 0 ? 2 : 1;
  }
  EXPECT_EQ(DroppedTokens(), expected);
}

TEST_F(DriftSeriesTest, ARequestIdCountsOncePerClientAndRun) {
  Publish(TwoTokens(), "r", "id");
  Publish(TwoTokens(), "r", "id");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 1);
  Publish(TwoTokens(), "s", "id");
  Publish(TwoTokens(), "r", "id", "b");
  Publish(TwoTokens(), "r", "other");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 3);
  EXPECT_EQ(Total("counterweight_corrected_batches_total").counter.value, 4);
}

TEST_F(DriftSeriesTest, WithoutARequestIdEachBatchCounts) {
  Publish(TwoTokens(), "r");
  Publish(TwoTokens(), "r");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 2);
}

TEST_F(DriftSeriesTest, AClientsIdlestRunLeaves) {
  Publish(TwoTokens(), "r1");
  Publish(TwoTokens(), "r2");
  Publish(TwoTokens(), "r1");
  Publish(TwoTokens(), "r3");
  EXPECT_TRUE(HasRun("r1"));
  EXPECT_FALSE(HasRun("r2")) << "the idlest";
  EXPECT_TRUE(HasRun("r3"));
}

TEST_F(DriftSeriesTest, TheIdlestOfAllLeaves) {
  Publish(TwoTokens(), "a1", "", "a");
  Publish(TwoTokens(), "b1", "", "b");
  Publish(TwoTokens(), "a1", "", "a");
  Publish(TwoTokens(), "c1", "", "c");
  Publish(TwoTokens(), "d1", "", "d");
  EXPECT_TRUE(HasRun("a1"));
  EXPECT_FALSE(HasRun("b1"));
  EXPECT_EQ(Total("counterweight_drift_runs").gauge.value, 3);
}

TEST_F(DriftSeriesTest, TotalsAndTheUnlabelledRunOutliveAll) {
  Publish(TwoTokens(), "");
  const size_t before = NumRunSeries();
  for (int i = 0; i < 100; ++i) {
    Publish(TwoTokens(), "run-" + std::to_string(i), "",
            "client-" + std::to_string(i % 7));
  }
  EXPECT_TRUE(HasRun(""));
  EXPECT_EQ(Total("counterweight_corrected_tokens_total").counter.value, 202);
  EXPECT_EQ(NumRunSeries(), before * 4) << "three runs and the unlabelled one";
}

TEST_F(DriftSeriesTest, IsThreadSafe) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 50; ++j) {
        Publish(TwoTokens(), "run-" + std::to_string((i + j) % 5),
                "id-" + std::to_string(j), "client-" + std::to_string(i));
        registry_.Collect();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Total("counterweight_corrected_batches_total").counter.value, 200);
}

TEST_F(DriftSeriesTest, APublicationHidesNoBatchOfTheServer) {
  const PublishedBatch forged = Published({}, {}, TwoTokens());
  series_.Publish({.client = "a",
                   .run = "r",
                   .policy_version = std::nullopt,
                   .request_id = "step-7",
                   .source = RecentIds::Source::kPublication,
                   .batch = &forged});
  Publish(TwoTokens(), "r", "step-7");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 2);
  Publish(TwoTokens(), "r", "step-7");
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 2) << "a retry";
}

}  // namespace
}  // namespace counterweight::server
