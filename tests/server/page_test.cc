#include "server/observe/page.h"

#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "prometheus/registry.h"
#include "server/engine/codec_publication.h"
#include "server/observe/run_ring.h"

namespace counterweight::server {
namespace {

using nlohmann::json;

constexpr int64_t kKept = 3;

// One row of two tokens with this mean log ratio.
kernels::BatchSums Batch(double log_ratio) {
  kernels::BatchSums sums{};
  sums.num_sequences = sums.nonempty_sequences = 1;
  sums.tokens = 2;
  sums.drift.log_ratio = 2 * log_ratio;
  sums.drift.histogram[5] = 2;
  return sums;
}

class PageTest : public testing::Test {
 protected:
  void Publish(const std::string& run, const kernels::BatchSums& sums) {
    const PublishedBatch batch = Published({}, {}, sums);
    series_.Publish({.client = "a",
                     .run = run,
                     .policy_version = std::nullopt,
                     .request_id = "",
                     .batch = &batch});
  }

  json Data(const std::string& run) {
    return json::parse(page_.Data(run).body);
  }

  prometheus::Registry registry_;
  DriftSeries series_{
      {.max_runs = 2, .max_runs_per_client = 2, .last_batches = kKept},
      &registry_};
  const Page page_{&series_, "127.0.0.1:1"};
};

TEST_F(PageTest, AnEmptyServerTellsItsAddress) {
  EXPECT_EQ(Data(""), json::parse(R"({"address": "127.0.0.1:1", "runs": []})"));
}

TEST_F(PageTest, HasTheLastBatchesOldestFirst) {
  for (const double log_ratio : {0.5, 0.25, 0.125, 1.0}) {
    Publish("r", Batch(log_ratio));
  }
  kernels::BatchSums last = Batch(2);
  std::swap(last.drift.histogram[5], last.drift.histogram[10]);
  Publish("r", last);
  const json run = Data("r")["run"];
  EXPECT_EQ(run["name"], "r");
  EXPECT_EQ(run["gauges"]["counterweight_drift_kl_nats"],
            (json{-0.125, -1.0, -2.0}));
  EXPECT_EQ(run["times"].size(), 3U);
  EXPECT_EQ(run["histogram"], (json{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(run["edges"], json(LogRatioBuckets()));
  EXPECT_FALSE(run["gauges"].contains("counterweight_loss")) << "no loss";
}

TEST_F(PageTest, HasTheDriftOfReplicas) {
  kernels::BatchSums sums = Batch(0.5);
  Publish("r", sums);
  EXPECT_EQ(Data("r")["run"]["replicas"], json::array());
  for (int i = 0; i < 16; ++i) {
    for (const std::string replica : {"a", "b", "c"}) {
      sums.drift.k3 = (replica == "b" ? 3.0 : 1.0) * (i % 2 == 0 ? 0.8 : 1.2);
      const PublishedBatch batch = Published({}, {}, sums);
      series_.Publish({.client = "a",
                       .run = "r",
                       .replica = replica,
                       .request_id = "",
                       .batch = &batch});
    }
  }
  const json data = Data("r");
  const json replicas = data["run"]["replicas"];
  ASSERT_EQ(replicas.size(), 3U);
  EXPECT_EQ(replicas[0]["name"], "a");
  EXPECT_EQ(replicas[0]["tokens"], 32);
  EXPECT_NEAR(replicas[0]["k3"], 0.5, 1e-12);
  EXPECT_FALSE(replicas[0]["outlier"]);
  EXPECT_NEAR(replicas[1]["share"], 0.6, 1e-12);
  EXPECT_NEAR(replicas[1]["of_others"], 3.0, 1e-12);
  EXPECT_TRUE(replicas[1]["outlier"]);
  const std::string sentence = data["runs"][0]["replicas"];
  EXPECT_EQ(sentence.find("replica b drifts 3 x the others (z "), 0U);
}

TEST_F(PageTest, HasTheAuditedRows) {
  constexpr float kLog = 0.1f;
  const std::vector<float> rollout(40, -1.0f), old(40, -1.0f + kLog);
  const std::vector<uint8_t> mask(40, 1);
  std::vector<int64_t> offsets;
  for (int64_t at = 0; at <= 40; ++at) offsets.push_back(at);
  kernels::Batch batch;
  batch.num_sequences = 40;
  batch.offsets = offsets.data();
  batch.tensors[static_cast<int>(kernels::InputRole::kRollout)].data =
      rollout.data();
  batch.tensors[static_cast<int>(kernels::InputRole::kOld)].data = old.data();
  batch.response_mask = mask.data();
  series_.CountAudited(
      "r", "a", "",
      kernels::doctor::SumsOfRows(batch, kernels::InputRole::kOld, nullptr));
  const json data = Data("r");
  EXPECT_EQ(data["runs"][0]["audit"],
            "k3 0.00517 (0.00517 to 0.00517) from 40 audited rows; that is "
            "enough");
  EXPECT_TRUE(data.contains("run")) << "a run may have audited rows alone";
}

TEST_F(PageTest, WhatWasNotMeasuredIsNull) {
  kernels::BatchSums sums = Batch(0);
  Publish("r", sums);
  sums.drift.k3 = std::nan("");
  Publish("r", sums);
  EXPECT_EQ(Data("r")["run"]["gauges"]["counterweight_drift_k3_nats"],
            json::parse("[0.0, null]"));
}

TEST_F(PageTest, ABatchWithoutTokensIsNoPoint) {
  kernels::BatchSums empty{};
  empty.num_sequences = 1;
  Publish("r", empty);
  EXPECT_FALSE(Data("r").contains("run"));
  EXPECT_EQ(Data("r")["runs"].size(), 1U);
}

TEST_F(PageTest, HasTheFaultsOfTheLastExaminedBatch) {
  Publish("r", Batch(0.5));
  EXPECT_FALSE(Data("r")["runs"][0].contains("faults"));
  series_.CountExamined("r", "a",
                        {.faults = {{"rare", "warning"}, {"wrong", "error"}}});
  EXPECT_EQ(Data("r")["runs"][0]["faults"], (json{"wrong", "rare"}));
}

TEST_F(PageTest, HasTheCausesOfTheLastExaminedBatch) {
  Publish("r", Batch(0.5));
  EXPECT_FALSE(Data("r")["runs"][0].contains("why"));
  series_.CountExamined("r", "a", {.why = "k3 0.1 = ..."});
  EXPECT_EQ(Data("r")["runs"][0]["why"], "k3 0.1 = ...");
}

// It corrects elsewhere, and has no batch here.
TEST_F(PageTest, EachRunThatReportsItsStepsIsThere) {
  for (const char* run : {"a", "b"}) {
    StepReport report;
    report.run = run;
    series_.Report(report, "a");
  }
  EXPECT_EQ(Data("a")["run"]["name"], "a");
  EXPECT_EQ(Data("b")["run"]["name"], "b");
  EXPECT_FALSE(Data("c").contains("run"));
}

TEST_F(PageTest, RunsThatLeftPrometheusLeaveThePage) {
  for (const char* run : {"a", "b", "c"}) Publish(run, Batch(0));
  const json data = Data("a");
  EXPECT_FALSE(data.contains("run"));
  std::set<std::string> names;
  for (const json& run : data["runs"]) {
    names.insert(run["name"].get<std::string>());
    EXPECT_GE(run["seconds"], 0);
  }
  EXPECT_EQ(names, (std::set<std::string>{"b", "c"}));
}

TEST_F(PageTest, IsReadWhileBatchesCome) {
  std::thread publishing([this] {
    for (int i = 0; i < 200; ++i) Publish(i % 2 == 0 ? "a" : "b", Batch(0.5));
  });
  for (int i = 0; i < 50; ++i) {
    const json data = Data("a");
    if (!data.contains("run")) continue;
    EXPECT_LE(data["run"]["times"].size(), size_t{kKept});
  }
  publishing.join();
  EXPECT_EQ(Data("b")["run"]["times"].size(), size_t{kKept});
}

TEST_F(PageTest, EachAnswerHasItsOwnNonce) {
  const WebAnswer one = page_.Html();
  const WebAnswer other = page_.Html();
  EXPECT_NE(one.body, other.body);
  EXPECT_EQ(one.body.find("NONCE"), std::string::npos);
  const size_t start = one.body.find("<script nonce=\"") + 15;
  const std::string nonce =
      one.body.substr(start, one.body.find('"', start) - start);
  EXPECT_EQ(nonce.size(), 32U);
  EXPECT_NE(one.headers.find("script-src 'nonce-" + nonce + "'"),
            std::string::npos);
}

TEST(RunRing, KeepsTheNewestOldestFirstHoweverManyCome) {
  constexpr size_t kCapacity = 3;
  RunRing ring(kCapacity);
  const PublishedBatch batch = Published({}, {}, Batch(0));
  std::vector<int64_t> expected;
  for (int64_t time = 1; time <= 10; ++time) {
    ring.Add({.batch = &batch}, RunDrift{}, time);
    if (expected.size() == kCapacity) expected.erase(expected.begin());
    expected.push_back(time);
    std::vector<int64_t> times;
    for (const RunPoint& point : ring.Points()) {
      times.push_back(point.unix_milliseconds);
    }
    EXPECT_EQ(times, expected);
  }
}

TEST(RunRing, AStepTakesThePlaceOfItsEarlierParts) {
  RunRing ring(2);
  const PublishedBatch batch = Published({}, {}, Batch(0));
  const auto add = [&](std::optional<int64_t> step, int64_t time) {
    ring.Add({.step = step, .batch = &batch}, RunDrift{}, time);
    std::vector<int64_t> times;
    for (const RunPoint& point : ring.Points()) {
      times.push_back(point.unix_milliseconds);
    }
    return times;
  };
  EXPECT_EQ(add(7, 1), std::vector<int64_t>({1}));
  EXPECT_EQ(add(8, 2), std::vector<int64_t>({1, 2}));
  EXPECT_EQ(add(7, 3), std::vector<int64_t>({3, 2}));
  EXPECT_EQ(add(9, 4), std::vector<int64_t>({2, 4}));
  EXPECT_EQ(add(std::nullopt, 5), std::vector<int64_t>({4, 5}));
  EXPECT_EQ(add(std::nullopt, 6), std::vector<int64_t>({5, 6}));
}

TEST(RunRing, WithoutCapacityKeepsNothing) {
  RunRing ring(0);
  const PublishedBatch batch = Published({}, {}, Batch(0));
  ring.Add({.batch = &batch}, RunDrift{}, 0);
  EXPECT_TRUE(ring.Points().empty());
}

}  // namespace
}  // namespace counterweight::server
