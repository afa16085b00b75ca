#include "server/observe/drift_series.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/codec_publication.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;

// One row of two tokens.
BatchSums TwoTokens() {
  BatchSums sums{};
  sums.num_sequences = 1;
  sums.nonempty_sequences = 1;
  sums.tokens = 2;
  sums.kept_tokens = 1;
  sums.kept_sequences = 1;
  sums.weight.normalizer = 1;
  return sums;
}

class DriftSeriesTest : public testing::Test {
 protected:
  void Publish(const BatchSums& sums, const std::string& run,
               const std::string& request_id = "",
               const std::string& client = "a", bool has_weight = false) {
    kernels::CorrectionSpec spec;
    if (has_weight) spec.weight.level = kernels::Level::kToken;
    Publish(sums, run, spec, std::nullopt, request_id, client);
  }

  void Publish(const BatchSums& sums, const std::string& run,
               const kernels::CorrectionSpec& spec,
               std::optional<int64_t> policy_version,
               const std::string& request_id = "",
               const std::string& client = "a") {
    const PublishedBatch batch = Published(spec, rule_names_, sums);
    series_.Publish({.client = client,
                     .run = run,
                     .policy_version = policy_version,
                     .request_id = request_id,
                     .batch = &batch});
  }

  // Returns the family's series with this label, or NaN.
  double Value(const std::string& family, const std::string& run) {
    for (const auto& collected : registry_.Collect()) {
      if (collected.name != family) continue;
      for (const auto& metric : collected.metric) {
        for (const auto& label : metric.label) {
          if (label.name == "run" && label.value == run) {
            return collected.type == prometheus::MetricType::Counter
                       ? metric.counter.value
                       : metric.gauge.value;
          }
        }
      }
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

  bool HasRun(const std::string& run) {
    return !std::isnan(Value("counterweight_drift_batches_total", run));
  }

  // Returns the value of a family without labels.
  prometheus::ClientMetric Total(const std::string& family) {
    for (const auto& collected : registry_.Collect()) {
      if (collected.name == family) return collected.metric.front();
    }
    return {};
  }

  // Returns the number of series without the families over all runs.
  size_t NumRunSeries() {
    size_t count = 0;
    for (const auto& collected : registry_.Collect()) {
      for (const auto& metric : collected.metric) {
        count += metric.label.empty() ? 0 : 1;
      }
    }
    return count;
  }

  // Returns the family's counters by the label that is not the run.
  std::map<std::string, double> Values(const std::string& name) {
    std::map<std::string, double> values;
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        for (const auto& label : metric.label) {
          if (label.name != "run") values[label.value] = metric.counter.value;
        }
      }
    }
    return values;
  }

  std::map<std::string, double> DroppedTokens() {
    return Values("counterweight_drift_dropped_tokens_total");
  }

  prometheus::Registry registry_;
  std::vector<std::string> rule_names_;
  DriftSeries::Clock::time_point now_;
  DriftSeries series_{{.max_runs = 3,
                       .max_runs_per_client = 2,
                       .gauge_window = std::chrono::minutes(10)},
                      &registry_,
                      [this] { return now_; }};
};

TEST_F(DriftSeriesTest, GaugesAreTheFormulas) {
  // l = 0.2 and -0.1.
  const double u1 = std::expm1(0.2);
  const double u2 = std::expm1(-0.1);
  BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 0.1;
  sums.drift.k3 = (u1 - 0.2) + (u2 + 0.1);
  sums.drift.excess = u1 + u2;
  sums.drift.excess_squared = u1 * u1 + u2 * u2;
  sums.drift.chi2_sequence = std::expm1(0.2);
  sums.drift.ppl_ratio_excess = std::expm1(-0.05);
  Publish(sums, "r");
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_kl_nats", "r"), -0.05);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_k3_nats", "r"),
                   sums.drift.k3 / 2);
  EXPECT_NEAR(Value("counterweight_drift_chi2_token", "r"),
              (std::exp(0.4) + std::exp(-0.2)) / 2 - 1, 1e-15);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_chi2_sequence", "r"),
                   std::exp(0.2) - 1);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_ppl_ratio", "r"),
                   std::exp(-0.05));
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_kept_token_ratio", "r"), 0.5);
  EXPECT_TRUE(std::isnan(Value("counterweight_drift_weight_mean", "r")))
      << "no weight, no series";
}

TEST_F(DriftSeriesTest, EqualPoliciesHaveNoDrift) {
  BatchSums sums = TwoTokens();
  sums.weight.weight = 2;
  sums.weight.weight_squared = 2;
  sums.weight.range = {1, 1};
  Publish(sums, "r", "", "a", /*has_weight=*/true);
  EXPECT_EQ(Value("counterweight_drift_kl_nats", "r"), 0);
  EXPECT_FALSE(std::signbit(Value("counterweight_drift_kl_nats", "r")));
  EXPECT_EQ(Value("counterweight_drift_ppl_ratio", "r"), 1);
  EXPECT_EQ(Value("counterweight_drift_effective_sample_size_ratio", "r"), 1);
  EXPECT_EQ(Value("counterweight_drift_weight_mean", "r"), 1);
  EXPECT_EQ(Value("counterweight_drift_weight_max", "r"), 1);
}

TEST_F(DriftSeriesTest, WeightsAreShownAsTheNativeMetricsDo) {
  // Weights 0.5 and 2, before normalization divides them by 1.25; afterwards
  // their mean is always 1.
  BatchSums sums = TwoTokens();
  sums.weight.weight = 2.5;
  sums.weight.weight_squared = 4.25;
  sums.weight.excess = 0.5;
  sums.weight.excess_squared = 1.25;
  sums.weight.range = {0.5, 2};
  sums.weight.tokens_high = 1;
  sums.weight.tokens_outside = 2;
  sums.weight.normalizer = 1.25;
  Publish(sums, "r", "", "a", /*has_weight=*/true);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_mean", "r"), 1.25);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_max", "r"), 2);
  EXPECT_DOUBLE_EQ(
      Value("counterweight_drift_effective_sample_size_ratio", "r"),
      1.25 * 1.25 / 2.125);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_high_ratio", "r"), 0.5);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_low_ratio", "r"), 0.5);
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_weight_outside_ratio", "r"), 1);
}

TEST_F(DriftSeriesTest, LossGaugesAreTheNativeMetrics) {
  BatchSums sums = TwoTokens();
  sums.loss.total = 1.5;
  sums.loss.policy = 1.25;
  sums.loss.kl_penalty = 2.5;
  sums.loss.kl = 6;
  sums.loss.kl_tokens = 4;
  sums.loss.log_ratio_kept = -0.25;
  sums.loss.clipped = 1;
  sums.loss.high = 2;
  sums.loss.low = 1;
  sums.loss.gradient_squared = 9;
  sums.loss.slope = 8;
  sums.loss.slope_clipped = 2;
  sums.loss.slope_rejected = 1;
  kernels::CorrectionSpec spec;
  Publish(sums, "r", spec, std::nullopt);
  EXPECT_TRUE(std::isnan(Value("counterweight_loss", "r")))
      << "no loss, no series";
  spec.loss.surrogate = kernels::Surrogate::kPpoClip;
  Publish(sums, "r", spec, std::nullopt);
  EXPECT_EQ(Value("counterweight_loss", "r"), 1.5);
  EXPECT_EQ(Value("counterweight_loss_policy", "r"), 1.25);
  EXPECT_EQ(Value("counterweight_loss_ppo_kl_nats", "r"), 0.25);
  EXPECT_EQ(Value("counterweight_loss_clip_ratio", "r"), 0.5);
  EXPECT_EQ(Value("counterweight_loss_clip_high_ratio", "r"), 1);
  EXPECT_EQ(Value("counterweight_loss_clip_low_ratio", "r"), 0.5);
  EXPECT_EQ(Value("counterweight_loss_gradient_norm", "r"), 3);
  EXPECT_EQ(Value("counterweight_loss_gradient_clipped_ratio", "r"), 0.25);
  EXPECT_EQ(Value("counterweight_loss_gradient_rejected_ratio", "r"), 0.125);
  EXPECT_TRUE(std::isnan(Value("counterweight_loss_kl_penalty", "r")))
      << "no penalty, no series";
  spec.loss.kl.estimator = kernels::KlEstimator::kK3;
  Publish(sums, "r", spec, std::nullopt);
  EXPECT_EQ(Value("counterweight_loss_kl_penalty", "r"), 2.5);
  EXPECT_EQ(Value("counterweight_loss_kl_nats", "r"), 1.5);
}

TEST_F(DriftSeriesTest, ThePolicyVersionIsTheLastOneTold) {
  const kernels::CorrectionSpec spec;
  Publish(TwoTokens(), "r", spec, 7);
  Publish(TwoTokens(), "r", spec, std::nullopt);
  EXPECT_EQ(Value("counterweight_drift_policy_version", "r"), 7);
  Publish(TwoTokens(), "r", spec, 8);
  EXPECT_EQ(Value("counterweight_drift_policy_version", "r"), 8);
  Publish(TwoTokens(), "s", spec, std::nullopt);
  EXPECT_TRUE(std::isnan(Value("counterweight_drift_policy_version", "s")));
}

TEST_F(DriftSeriesTest, ABatchWithoutTokensMovesNoGauge) {
  BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 1;
  Publish(sums, "r");
  BatchSums empty{};
  empty.num_sequences = 4;
  Publish(empty, "r");
  EXPECT_DOUBLE_EQ(Value("counterweight_drift_kl_nats", "r"), -0.5);
  EXPECT_EQ(Value("counterweight_drift_batches_total", "r"), 2);
  EXPECT_EQ(Value("counterweight_drift_sequences_total", "r"), 5);
}

TEST_F(DriftSeriesTest, StalenessIsBoundedByRunAndShowsWhatWasMeasured) {
  BatchSums sums = TwoTokens();
  Publish(sums, "a");
  EXPECT_TRUE(
      std::isnan(Value("counterweight_drift_staleness_tokens_total", "a")));
  sums.staleness.measured = 1;
  sums.staleness.buckets[5] = {.tokens = 2, .log_ratio = -3.0, .k3 = 1.0};
  sums.staleness.unknown_tokens = 1;
  sums.staleness.histogram[9] = 2;
  Publish(sums, "a");
  Publish(sums, "a");
  std::map<std::string, double> tokens;
  std::map<std::string, double> kl;
  for (const auto& family : registry_.Collect()) {
    for (const auto& metric : family.metric) {
      std::string staleness;
      for (const auto& label : metric.label) {
        if (label.name == "staleness") staleness = label.value;
      }
      if (family.name == "counterweight_drift_staleness_tokens_total") {
        tokens[staleness] = metric.counter.value;
      }
      if (family.name == "counterweight_drift_staleness_kl_nats") {
        kl[staleness] = metric.gauge.value;
      }
    }
  }
  EXPECT_EQ(tokens, (std::map<std::string, double>{{"0", 0},
                                                   {"1", 0},
                                                   {"2", 0},
                                                   {"3-4", 0},
                                                   {"5-8", 0},
                                                   {"9+", 4},
                                                   {"unknown", 2}}));
  EXPECT_EQ(kl, (std::map<std::string, double>{{"9+", 1.5}}));
}

TEST_F(DriftSeriesTest, GaugesOfARunThatLeftLeave) {
  BatchSums sums = TwoTokens();
  sums.drift.log_ratio = 1;
  sums.drift.histogram[9] = 2;
  sums.staleness.measured = 1;
  sums.staleness.buckets[0] = {.tokens = 2, .log_ratio = 1.0, .k3 = 1.0};
  const kernels::CorrectionSpec spec;
  Publish(sums, "left", spec, 7);
  Publish(sums, "stays", spec, 7);
  const size_t all = NumRunSeries();
  now_ += std::chrono::minutes(10);
  series_.HideOldGauges();
  EXPECT_EQ(NumRunSeries(), all);
  Publish(TwoTokens(), "stays", spec, 8);
  now_ += std::chrono::seconds(1);
  series_.HideOldGauges();
  for (const char* gauge :
       {"counterweight_drift_kl_nats", "counterweight_drift_k3_nats",
        "counterweight_drift_kept_token_ratio",
        "counterweight_drift_policy_version",
        "counterweight_drift_staleness_kl_nats",
        "counterweight_drift_staleness_k3_nats"}) {
    EXPECT_TRUE(std::isnan(Value(gauge, "left"))) << gauge;
  }
  EXPECT_EQ(Value("counterweight_drift_policy_version", "stays"), 8);
  // A gauge of something that its last batches lacked has left, too.
  EXPECT_TRUE(
      std::isnan(Value("counterweight_drift_staleness_kl_nats", "stays")));
  EXPECT_EQ(Value("counterweight_drift_tokens_total", "left"), 2);
  EXPECT_EQ(Value("counterweight_drift_k3_sum_nats_total", "left"), 0);
  EXPECT_EQ(Total("counterweight_drift_runs").gauge.value, 2);
  Publish(sums, "left", spec, 9);
  EXPECT_EQ(Value("counterweight_drift_policy_version", "left"), 9);
  EXPECT_EQ(Value("counterweight_drift_kl_nats", "left"), -0.5);
  EXPECT_EQ(Value("counterweight_drift_tokens_total", "left"), 4);
}

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

constexpr auto kServer = RecentIds::Source::kServer;
constexpr auto kPublication = RecentIds::Source::kPublication;

TEST(RecentIds, ForgetsTheOldest) {
  RecentIds ids(2);
  const RecentIds::Owner owner("run", "client");
  EXPECT_TRUE(ids.Insert(owner, "a", kServer));
  EXPECT_TRUE(ids.Insert(owner, "b", kServer));
  EXPECT_FALSE(ids.Insert(owner, "a", kServer));
  EXPECT_TRUE(ids.Insert(owner, "c", kServer));
  EXPECT_TRUE(ids.Insert(owner, "b", kServer)) << "a was used later than b";
  EXPECT_FALSE(ids.Insert(owner, "c", kServer));
  EXPECT_EQ(ids.size(), 2U);
}

TEST(RecentIds, AFloodTakesNoOtherOwnersPlace) {
  RecentIds ids(100);
  const RecentIds::Owner victim("run", "a");
  for (int i = 0; i < 20; ++i) ids.Insert(victim, std::to_string(i), kServer);
  for (int i = 0; i < 1000; ++i) {
    ids.Insert({"flood", "b"}, std::to_string(i), kPublication);
    ids.Insert({"run", "b"}, std::to_string(i), kPublication);
    ids.Insert({"", "a"}, std::to_string(i), kPublication);
  }
  EXPECT_EQ(ids.size(), 100U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(ids.Insert(victim, std::to_string(i), kServer)) << i;
  }
}

TEST(RecentIds, APublicationHidesNoBatchOfTheServer) {
  RecentIds ids(10);
  const RecentIds::Owner owner("run", "client");
  EXPECT_TRUE(ids.Insert(owner, "x", kPublication));
  EXPECT_FALSE(ids.Insert(owner, "x", kPublication));
  EXPECT_TRUE(ids.Insert(owner, "x", kServer));
  EXPECT_FALSE(ids.Insert(owner, "x", kServer)) << "a retry";
  EXPECT_FALSE(ids.Insert(owner, "x", kPublication));
}

TEST(RecentIds, ForgetsARun) {
  RecentIds ids(10);
  ids.Insert({"r", "a"}, "x", kServer);
  ids.Insert({"r", "b"}, "x", kServer);
  ids.Insert({"r1", "a"}, "x", kServer);
  ids.Forget("r");
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_FALSE(ids.Insert({"r1", "a"}, "x", kServer));
  EXPECT_TRUE(ids.Insert({"r", "a"}, "x", kServer));
}

}  // namespace
}  // namespace counterweight::server
