// Totals over batches, whatever one of them holds.
#include "server/observe/total.h"

#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "server/engine/bounded_sums.h"
#include "server/engine/codec_publication.h"
#include "server/observe/drift_series.h"
#include "tests/server/publications.h"

namespace counterweight::server {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Counters, and histograms' sums and counts, by name and labels.
std::map<std::string, double> TotalsOf(const prometheus::Registry& registry) {
  std::map<std::string, double> totals;
  for (const auto& family : registry.Collect()) {
    for (const auto& metric : family.metric) {
      std::string name = family.name;
      for (const auto& label : metric.label) name += "," + label.value;
      if (family.type == prometheus::MetricType::Counter) {
        totals[name] = metric.counter.value;
      } else if (family.type == prometheus::MetricType::Histogram) {
        totals[name + "_sum"] = metric.histogram.sample_sum;
        totals[name + "_count"] =
            static_cast<double>(metric.histogram.sample_count);
      }
    }
  }
  return totals;
}

class PublishedSeries {
 public:
  void Add(const PublishedBatch& batch) {
    series_.Publish({.client = "a",
                     .run = "run",
                     .policy_version = 12,
                     .request_id = "",
                     .batch = &batch});
  }
  std::map<std::string, double> Totals() const { return TotalsOf(registry_); }

 private:
  prometheus::Registry registry_;
  DriftSeries series_{{.max_runs = 2, .max_runs_per_client = 2}, &registry_};
};

PublishedBatch Honest() {
  return ReadPublication(FullPublication(), {}).value.batch;
}

// A batch as large as the server takes, with every number at `number`.
PublishedBatch Hostile(double number) {
  PublishedBatch batch = Honest();
  PublishedSums& sums = batch.sums;
  sums.tokens = sums.kept_tokens = sums.non_finite_tokens =
      RequestLimits().max_tokens;
  sums.drift.histogram[10] += sums.tokens - 100;
  PublishedSums::Drift& drift = sums.drift;
  for (double* each : {&drift.log_ratio,
                       &drift.k2,
                       &drift.k3,
                       &drift.excess,
                       &drift.excess_squared,
                       &drift.log_ppl_difference,
                       &drift.ppl_ratio_excess,
                       &drift.chi2_sequence,
                       &sums.weight.weight,
                       &sums.weight.weight_squared,
                       &sums.weight.excess,
                       &sums.weight.excess_squared,
                       &sums.loss.total,
                       &sums.loss.policy,
                       &sums.loss.log_ratio_kept,
                       &sums.loss.slope,
                       &sums.loss.slope_clipped,
                       &sums.loss.slope_rejected,
                       &sums.loss.kl,
                       &sums.staleness.staleness}) {
    *each = number;
  }
  for (auto& bucket : sums.staleness.buckets) bucket.k3 = number;
  sums.staleness.histogram[9] = sums.tokens;
  return batch;
}

TEST(Totals, NoBatchStopsATotal) {
  PublishedSeries alone;
  alone.Add(Honest());
  const std::map<std::string, double> honest = alone.Totals();
  ASSERT_GT(honest.size(), 50U);
  for (const double number :
       {3e38, -3e38, 1e300, -1e300, kInfinity, -kInfinity, 0x1p63,
        std::numeric_limits<double>::quiet_NaN()}) {
    PublishedSeries published;
    for (int i = 0; i < 100; ++i) published.Add(Hostile(number));
    // As the first that a total may begin again with.
    published.Add(Honest());
    const std::map<std::string, double> before = published.Totals();
    published.Add(Honest());
    for (const auto& [name, after] : published.Totals()) {
      const double own = honest.at(name);
      EXPECT_TRUE(std::isfinite(after)) << name;
      const double moved = after - before.at(name);
      const double tolerance = 1e-3 * std::fabs(own);
      // As rate() reads it: what decreases has begun again.
      EXPECT_TRUE(std::fabs(moved - own) <= tolerance ||
                  std::fabs(after - own) <= tolerance)
          << name << " after " << number << ": " << before.at(name) << " to "
          << after << ", not by " << own;
    }
  }
}

TEST(Totals, ACountBeginsAgainWhereOnesWouldBeLost) {
  EXPECT_FALSE(IsSpent(Addends::kCounts, 0x1p53 - 1, 1));
  EXPECT_TRUE(IsSpent(Addends::kCounts, 0x1p53, 1));
  prometheus::Registry registry;
  auto& family = prometheus::BuildCounter().Name("c").Register(registry);
  Total total(family, {}, Addends::kCounts);
  total.Add(0x1p53 - 1);
  total.Add(1);
  EXPECT_EQ(TotalsOf(registry).at("c"), 0x1p53);
  total.Add(512);
  EXPECT_EQ(TotalsOf(registry).at("c"), 512);
  total.Add(-1);
  total.Add(std::nan(""));
  EXPECT_EQ(TotalsOf(registry).at("c"), 512);
}

TEST(Totals, AHistogramThatHasBegunAgainGoesOn) {
  prometheus::Registry registry;
  auto& family = prometheus::BuildHistogram().Name("h").Register(registry);
  const std::vector<double> buckets = {1};
  TotalHistogram total(family, {}, buckets);
  const std::vector<int64_t> all = {0, int64_t{1} << 53};
  const std::vector<int64_t> few = {1, 2};
  total.Add(all, 1e9);
  for (int i = 1; i <= 3; ++i) {
    total.Add(few, 5);
    EXPECT_EQ(TotalsOf(registry).at("h_count"), i * 3);
    EXPECT_EQ(TotalsOf(registry).at("h_sum"), i * 5);
  }
}

TEST(Totals, ANumberBeginsAgainWhereAddendsWouldBeLost) {
  EXPECT_FALSE(IsSpent(Addends::kNumbers, 0x1p40, 1e-9));
  EXPECT_FALSE(IsSpent(Addends::kNumbers, 0x1p50, 0)) << "nothing is lost";
  EXPECT_FALSE(IsSpent(Addends::kNumbers, 0x1p50, 0x1p20));
  EXPECT_TRUE(IsSpent(Addends::kNumbers, 0x1p50, 0x1p19));
  EXPECT_TRUE(IsSpent(Addends::kNumbers, -0x1p50, 0x1p19));
}

TEST(BoundedSums, WhatTokensMayHaveIsUntouched) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, 0.4);
  for (int batch = 0; batch < 100; ++batch) {
    LogRatioHistogram histogram{};
    double sum = 0;
    double k3 = 0;
    for (int t = 0; t < 50; ++t) {
      const auto l = static_cast<float>(normal(random));
      int b = 0;
      while (b < kernels::kNumHistogramEdges &&
             l > kernels::kHistogramEdges[b]) {
        ++b;
      }
      ++histogram[b];
      sum += double{l};
      k3 += std::expm1(double{l}) - double{l};
    }
    EXPECT_EQ(BoundedLogRatio(sum, histogram), sum);
    EXPECT_EQ(BoundedK3(k3, histogram), k3);
  }
}

TEST(BoundedSums, OneTokenFarOutCountsAsTwentyNats) {
  LogRatioHistogram histogram{};
  histogram[5] = 511;
  histogram[0] = 1;
  EXPECT_NEAR(BoundedLogRatio(-3.4e38, histogram), -20, 511 * 0.01 + 1e-6);
  EXPECT_NEAR(BoundedK3(kInfinity, histogram), std::exp(-20) + 19, 1);
  histogram[0] = 0;
  histogram[10] = 1;
  EXPECT_NEAR(BoundedLogRatio(kInfinity, histogram), 20, 511 * 0.01 + 1e-6);
}

TEST(BoundedSums, ASequenceFarOutCountsAsTwentyNats) {
  LogRatioHistogram histogram{};
  histogram[0] = 1;
  histogram[5] = 1;
  EXPECT_EQ(BoundedPplRatio(3, histogram), 3);
  EXPECT_NEAR(BoundedPplRatio(kInfinity, histogram) / std::exp(20), 1, 1e-4);
}

TEST(BoundedSums, StalenessIsAtMost1024) {
  PublishedSums::Staleness staleness{};
  staleness.histogram[0] = 3;
  staleness.histogram[9] = 2;
  staleness.staleness = 0x1p64;
  EXPECT_EQ(BoundedStaleness(staleness), 2 * 1024);
  staleness.staleness = 129 + 500;
  EXPECT_EQ(BoundedStaleness(staleness), 629);
  staleness.staleness = 0;
  EXPECT_EQ(BoundedStaleness(staleness), 2 * 129);
}

}  // namespace
}  // namespace counterweight::server
