#include "kernels/doctor/calm_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/testing/random_rows.h"

namespace counterweight::kernels::doctor {
namespace {

// Rows of `length` tokens with the log ratios `logs` of old over rollout.
class Rows {
 public:
  Rows(std::vector<float> logs, int64_t length)
      : old_(std::move(logs)),
        rollout_(old_.size(), 0.0f),
        mask_(old_.size(), 1) {
    for (size_t at = 0; at <= old_.size(); at += static_cast<size_t>(length)) {
      offsets_.push_back(static_cast<int64_t>(at));
    }
  }

  std::vector<uint8_t>& mask() { return mask_; }
  Batch batch() const {
    Batch batch;
    batch.num_sequences = static_cast<int64_t>(offsets_.size()) - 1;
    batch.offsets = offsets_.data();
    batch.tensors[static_cast<int>(InputRole::kOld)].data = old_.data();
    batch.tensors[static_cast<int>(InputRole::kRollout)].data = rollout_.data();
    batch.response_mask = mask_.data();
    return batch;
  }

 private:
  std::vector<float> old_, rollout_;
  std::vector<uint8_t> mask_;
  std::vector<int64_t> offsets_;
};

std::vector<float> NormalLogs(int n, double spread) {
  Random random(7);
  std::vector<float> logs;
  for (int i = 0; i < n; ++i) {
    logs.push_back(static_cast<float>(spread * random.Normal()));
  }
  return logs;
}

WeightSpec SpecOf(Level level) {
  WeightSpec spec;
  spec.level = level;
  return spec;
}

TEST(CalmWeightsTest, BucketsAreQuarterOctavesOfBothSigns) {
  EXPECT_EQ(BucketOf(0.0), kQuarterOctaves);
  EXPECT_EQ(BucketOf(0x1p-15), kQuarterOctaves);
  EXPECT_EQ(EndOf(kQuarterOctaves), 0x1p-15);
  EXPECT_EQ(EndOf(kWeightBuckets - 1), 16.0);
  EXPECT_EQ(BucketOf(1000.0), kWeightBuckets - 1);
  EXPECT_EQ(BucketOf(-1000.0), 0);
  // The end belongs to its bucket, and is 2^(1/4) times the one before.
  for (int bucket = kQuarterOctaves + 1; bucket < kWeightBuckets; ++bucket) {
    EXPECT_EQ(BucketOf(EndOf(bucket)), bucket);
    EXPECT_EQ(BucketOf(-EndOf(bucket)), 2 * kQuarterOctaves - bucket);
    EXPECT_NEAR(EndOf(bucket) / EndOf(bucket - 1), std::pow(2.0, 0.25), 1e-15);
  }
}

// The quantile of a sort, and of no smaller bucket.
TEST(CalmWeightsTest, QuantileIsThatOfASortUpToAQuarterOctave) {
  std::vector<float> logs = NormalLogs(60000, 0.1);
  const WeightCounts counts =
      CountWeights(Rows(logs, 50).batch(), SpecOf(Level::kToken));
  EXPECT_EQ(NumWeights(counts), 60000);
  std::sort(logs.begin(), logs.end());
  for (const double quantile : {0.6, 0.9, 0.99, 0.999}) {
    const double sorted =
        logs[static_cast<size_t>(std::ceil(quantile * 60000.0)) - 1];
    const double bound = LogQuantile(counts, quantile);
    EXPECT_GE(bound, sorted) << quantile;
    EXPECT_LE(bound, sorted * std::pow(2.0, 0.25)) << quantile;
  }
  EXPECT_NEAR(MeanSquare(counts), 0.01, 0.003);
}

TEST(CalmWeightsTest, LevelsAggregateAsWeightsDo) {
  // Rows 0.5, 0.5 and -0.25, 0.5.
  const Rows rows({0.5f, 0.5f, -0.25f, 0.5f}, 2);
  const auto found = [&](WeightSpec spec) {
    const WeightCounts counts = CountWeights(rows.batch(), spec);
    std::vector<int> buckets;
    for (int i = 0; i < kWeightBuckets; ++i) {
      buckets.insert(buckets.end(),
                     static_cast<size_t>(counts[static_cast<size_t>(i)]), i);
    }
    return buckets;
  };
  using testing::ElementsAre;
  const int half = BucketOf(0.5), quarter = BucketOf(0.25);
  EXPECT_THAT(found(SpecOf(Level::kToken)),
              ElementsAre(BucketOf(-0.25), half, half, half));
  EXPECT_THAT(found(SpecOf(Level::kSequence)),
              ElementsAre(quarter, BucketOf(1.0)));
  EXPECT_THAT(found(SpecOf(Level::kGeometric)),
              ElementsAre(BucketOf(0.125), half));
  EXPECT_THAT(found(SpecOf(Level::kPrefix)),
              ElementsAre(BucketOf(-0.25), BucketOf(0.125), half, half));
  WeightSpec clamped = SpecOf(Level::kSequence);
  clamped.token_clamp = 0.25;
  clamped.aggregate_clamp = 0.25;
  EXPECT_THAT(found(clamped), ElementsAre(BucketOf(0.0), quarter));
}

TEST(CalmWeightsTest, LeavesOutMaskedAndNonFiniteTokens) {
  Rows rows({0.5f, NAN, 0.5f, 0.5f}, 2);
  rows.mask()[2] = rows.mask()[3] = 0;
  EXPECT_EQ(NumWeights(CountWeights(rows.batch(), SpecOf(Level::kToken))), 1);
  // A row without tokens has no weight.
  EXPECT_EQ(NumWeights(CountWeights(rows.batch(), SpecOf(Level::kSequence))),
            1);
}

TEST(CalmWeightsTest, LargeBatchesAreSampledByRow) {
  const int n = 200000;
  const WeightCounts counts = CountWeights(
      Rows(NormalLogs(n, 0.1), 100).batch(), SpecOf(Level::kToken));
  EXPECT_LE(NumWeights(counts), 65536);
  EXPECT_GT(NumWeights(counts), 50000);
  EXPECT_EQ(NumWeights(counts) % 100, 0);
}

TEST(CalmWeightsTest, QuantileIsAtLeastThatOfEqualPolicies) {
  const WeightCounts counts = CountWeights(
      Rows(std::vector<float>(100, -1.0f), 10).batch(), SpecOf(Level::kToken));
  EXPECT_EQ(LogQuantile(counts, 0.999), 0x1p-15);
}

}  // namespace
}  // namespace counterweight::kernels::doctor
