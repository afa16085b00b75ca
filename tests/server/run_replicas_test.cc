#include "server/observe/run_replicas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace counterweight::server {
namespace {

// The k3 of batch `i` of any replica: 1 % on average, 0.8 % and 1.2 % in turn.
double BatchK3(int i, int64_t tokens) {
  return 0.01 * static_cast<double>(tokens) * (i % 2 == 0 ? 0.8 : 1.2);
}

void AddBatches(const std::string& replica, int batches, double factor,
                RunReplicas* replicas) {
  for (int i = 0; i < batches; ++i) {
    replicas->Add(replica, 100, factor * BatchK3(i, 100));
  }
}

TEST(RunReplicasTest, ShareOfTokensAndOfK3) {
  RunReplicas replicas;
  AddBatches("b", 2, 3.0, &replicas);
  EXPECT_TRUE(replicas.Drifts().empty()) << "one alone has no others";
  AddBatches("a", 4, 1.0, &replicas);
  const std::vector<ReplicaDrift> drifts = replicas.Drifts();
  ASSERT_EQ(drifts.size(), 2U);
  EXPECT_EQ(drifts[0].name, "a");
  EXPECT_EQ(drifts[0].batches, 4);
  EXPECT_EQ(drifts[0].tokens, 400);
  EXPECT_NEAR(drifts[0].k3, 0.01, 1e-15);
  EXPECT_NEAR(drifts[0].share, 0.4, 1e-12);
  EXPECT_NEAR(drifts[1].k3, 0.03, 1e-15);
  EXPECT_NEAR(drifts[1].share, 0.6, 1e-12);
  for (const ReplicaDrift& each : drifts) EXPECT_EQ(each.z, 0) << "too few";
  EXPECT_EQ(SentenceOf(drifts), "");
}

// By hand: all K differ from R n by a fifth of R n, so s = 1.1 (1/5)
// sqrt(m / (m - 1)) / sqrt(m).
TEST(RunReplicasTest, ZIsTheDistanceInStandardErrors) {
  RunReplicas replicas;
  AddBatches("a", 16, 1.0, &replicas);
  AddBatches("b", 16, 1.0, &replicas);
  AddBatches("c", 16, 2.0, &replicas);
  const std::vector<ReplicaDrift> drifts = replicas.Drifts();
  const double s = 1.1 * 0.2 / std::sqrt(15.0);
  const double of_median = std::acos(-1.0) / 4.0;  // of two others
  const double spread = s * std::sqrt(1.0 + of_median);
  EXPECT_NEAR(drifts[2].of_others, 2.0, 1e-12);
  EXPECT_NEAR(drifts[2].z, std::log(2.0) / spread, 1e-9);
  // The median of 1 and 2 is 1.5 for the others.
  EXPECT_TRUE(drifts[2].is_outlier());
  EXPECT_FALSE(drifts[0].is_outlier());
  EXPECT_LT(drifts[0].z, 0);
  EXPECT_EQ(SentenceOf(drifts),
            "replica c drifts 2 x the others (z 9.1), with 50 % of the k3");
}

TEST(RunReplicasTest, EqualReplicasAreNoOutliers) {
  RunReplicas replicas;
  for (const char* name : {"a", "b", "c", "d"}) {
    AddBatches(name, 32, 1.0, &replicas);
  }
  for (const ReplicaDrift& each : replicas.Drifts()) {
    EXPECT_NEAR(each.of_others, 1.0, 1e-12);
    EXPECT_NEAR(each.z, 0.0, 1e-9);
    EXPECT_NEAR(each.share, 0.25, 1e-12);
  }
}

TEST(RunReplicasTest, OnlyTheNewestBatchesCount) {
  RunReplicas replicas;
  AddBatches("a", 32, 1.0, &replicas);
  AddBatches("b", 32, 9.0, &replicas);
  AddBatches("b", 32, 1.0, &replicas);
  const std::vector<ReplicaDrift> drifts = replicas.Drifts();
  EXPECT_EQ(drifts[1].batches, 32);
  EXPECT_NEAR(drifts[1].k3, 0.01, 1e-15);
}

TEST(RunReplicasTest, TheSilentOneMakesRoom) {
  RunReplicas replicas;
  for (size_t i = 0; i < RunReplicas::kMostReplicas; ++i) {
    replicas.Add("r" + std::to_string(i), 1, 0.1);
  }
  replicas.Add("r0", 1, 0.1);
  replicas.Add("new", 1, 0.1);
  const std::vector<ReplicaDrift> drifts = replicas.Drifts();
  EXPECT_EQ(drifts.size(), RunReplicas::kMostReplicas);
  std::string names;
  for (const ReplicaDrift& each : drifts) names += each.name + " ";
  EXPECT_EQ(names.find("r1 "), std::string::npos);
  EXPECT_EQ(names.find("new r0 "), 0U);
}

TEST(RunReplicasTest, BatchesWithoutDriftOrNameAreNotCompared) {
  RunReplicas replicas;
  replicas.Add("", 100, 1.0);
  replicas.Add("a", 0, 0.0);
  replicas.Add("a", 10, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(replicas.Drifts().empty());
  AddBatches("a", 16, 0.0, &replicas);
  AddBatches("b", 16, 1.0, &replicas);
  AddBatches("c", 16, 1.0, &replicas);
  const std::vector<ReplicaDrift> drifts = replicas.Drifts();
  EXPECT_EQ(drifts[0].share, 0);
  EXPECT_EQ(drifts[0].of_others, 0);
  EXPECT_NEAR(drifts[1].of_others, 1.0, 1e-12) << "of c alone";
}

}  // namespace
}  // namespace counterweight::server
