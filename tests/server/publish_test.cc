// Batches that clients corrected, in the metrics of a running server.
#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpc/compression.h"
#include "gtest/gtest.h"
#include "server/call/publish_call.h"
#include "tests/server/publications.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPath[] = "/counterweight.v1.CorrectionService/Publish";

class PublishTest : public testing::Test {
 protected:
  static Config WithMetrics() {
    Config config = TestConfig();
    config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
    config.max_runs_per_client = 2;
    config.max_requests_in_flight = 1;
    config.max_queued_requests = 0;
    return config;
  }

  grpc::Status Publish(const v1::PublishRequest& request) {
    grpc::ClientContext context;
    v1::PublishResponse response;
    return v1::CorrectionService::NewStub(running_.channel())
        ->Publish(&context, request, &response);
  }

  grpc::Status PublishBytes(const std::string& bytes) {
    RawUnary call(running_.channel(), kPath);
    EXPECT_TRUE(call.Send(bytes));
    return call.Finish();
  }

  RunningServer running_{WithMetrics()};
};

TEST_F(PublishTest, IsAnnounced) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running_.channel())
                  ->GetServerInfo(&context, {}, &info)
                  .ok());
  EXPECT_THAT(info.features(), testing::Contains("publish"));
}

TEST_F(PublishTest, AppearsInTheSeriesOfItsRun) {
  ASSERT_TRUE(Publish(FullPublication()).ok());
  const std::string page = running_.Scrape();
  for (const char* line :
       {"counterweight_drift_batches_total{run=\"run\"} 1\n",
        "counterweight_drift_tokens_total{run=\"run\"} 100\n",
        "counterweight_drift_kl_nats{run=\"run\"} 0.015\n",
        "counterweight_drift_weight_max{run=\"run\"} 2\n",
        "counterweight_drift_policy_version{run=\"run\"} 12\n",
        "counterweight_loss{run=\"run\"} -0.5\n",
        "counterweight_loss_kl_nats{run=\"run\"} 0.1\n",
        "counterweight_drift_dropped_tokens_total{rule=\"mean_k3\",run="
        "\"run\"} 5\n",
        "counterweight_drift_staleness_tokens_total{run=\"run\",staleness="
        "\"9+\"} 4\n",
        "counterweight_corrected_tokens_total 100\n",
        "counterweight_requests_total{code=\"OK\",method=\"Publish\"} 1\n",
        // It was not computed here.
        "counterweight_tokens_total 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(running_.Get("/page.json?run=run"),
              HasSubstr("counterweight_loss_gradient_norm"));
}

TEST_F(PublishTest, AnIdCountsOnceByEitherRpcAndHidesNoBatchOfTheServer) {
  const auto expect_batches = [&](int count) {
    EXPECT_THAT(running_.Scrape(),
                HasSubstr("counterweight_drift_batches_total{run=\"run\"} " +
                          std::to_string(count) + "\n"));
  };
  ASSERT_TRUE(running_.Correct(SmallRequest("id", "run")).ok());
  ASSERT_TRUE(running_.Correct(SmallRequest("id", "run")).ok());
  ASSERT_TRUE(Publish(FullPublication("id")).ok());
  expect_batches(1);
  ASSERT_TRUE(Publish(FullPublication("other")).ok());
  ASSERT_TRUE(Publish(FullPublication("other")).ok());
  expect_batches(2);
  ASSERT_TRUE(running_.Correct(SmallRequest("other", "run")).ok());
  expect_batches(3);
  ASSERT_TRUE(running_.Correct(SmallRequest("other", "run")).ok());
  ASSERT_TRUE(Publish(FullPublication("other")).ok());
  expect_batches(3);
}

TEST_F(PublishTest, CountsForNoMoreThanTheLargestBatch) {
  v1::PublishRequest request = FullPublication();
  request.mutable_sums()->set_non_finite_tokens(TestConfig().max_tokens + 1);
  const grpc::Status status = Publish(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("sums.non_finite_tokens: must be from 0 to "));
  EXPECT_THAT(status.error_message(), HasSubstr("the server's --max_tokens"));
}

TEST_F(PublishTest, RunsAreBounded) {
  for (const char* run : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(Publish(FullPublication("id", run)).ok());
  }
  const std::string page = running_.Scrape();
  EXPECT_THAT(page, HasSubstr("counterweight_drift_runs 2\n"));
  EXPECT_THAT(page, Not(HasSubstr("run=\"b\"")));
  EXPECT_THAT(page, HasSubstr("run=\"c\""));
}

TEST_F(PublishTest, AWrongNumberIsNamedAndPublishesNothing) {
  v1::PublishRequest request = FullPublication();
  request.mutable_sums()->mutable_drift()->set_k3(-1);
  request.mutable_sums()->set_kept_tokens(101);
  const grpc::Status status = Publish(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto detail = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(detail.field_violations_size(), 2);
  EXPECT_EQ(detail.field_violations(0).field(), "sums.kept_tokens");
  EXPECT_EQ(detail.field_violations(1).field(), "sums.drift.k3");
  EXPECT_THAT(running_.Scrape(), Not(HasSubstr("drift_batches_total{")));
  // Nor did it take the id.
  ASSERT_TRUE(Publish(FullPublication()).ok());
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("drift_batches_total{run=\"run\"} 1\n"));
}

TEST_F(PublishTest, OtherBytesAreRefused) {
  grpc::Status status = PublishBytes("\x0a\x05x");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("do not parse"));
  v1::PublishRequest request = FullPublication();
  // An unknown field.
  std::string bytes = request.SerializeAsString() + "\x7a\xff\xff\x03";
  bytes.append(65535, 'x');
  status = PublishBytes(bytes);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("at most 65536 bytes"));
  EXPECT_EQ(PublishBytes("").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Its metrics are the run's, whatever this server is busy with.
TEST_F(PublishTest, AFullServerTakesIt) {
  running_.backend().Close();
  auto busy = std::async(std::launch::async,
                         [&] { return running_.Correct(SmallRequest("a")); });
  running_.backend().WaitForCalls(1);
  EXPECT_EQ(running_.Correct(SmallRequest("b")).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Publish(FullPublication()).ok());
  running_.backend().Open();
  EXPECT_TRUE(busy.get().ok());
}

// The run's series include batches that clients corrected before the end.
TEST_F(PublishTest, AServerThatDrainsTakesIt) {
  running_.server().AnnounceDrain();
  running_.server().RefuseNewWork();
  EXPECT_EQ(running_.Correct(SmallRequest()).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Publish(FullPublication()).ok());
  EXPECT_TRUE(running_.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("drift_batches_total{run=\"run\"} 1\n"));
}

TEST_F(PublishTest, TheLimitsOfAReloadHold) {
  Config config = WithMetrics();
  const auto code_with = [&](int64_t tokens, int64_t sequences) {
    config.max_tokens = tokens;
    config.max_sequences = sequences;
    running_.server().SetConfig(config);
    return Publish(FullPublication(std::to_string(tokens + sequences)))
        .error_code();
  };
  EXPECT_EQ(code_with(99, 9), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code_with(100, 8), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code_with(100, 9), grpc::StatusCode::OK);
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("drift_batches_total{run=\"run\"} 1\n"));
}

TEST_F(PublishTest, MayBeCompressed) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::PublishResponse response;
  EXPECT_TRUE(v1::CorrectionService::NewStub(running_.channel())
                  ->Publish(&context, FullPublication(), &response)
                  .ok());
  // Its limit is that of the bytes that it becomes.
  v1::PublishRequest request = FullPublication("other");
  request.mutable_labels()->set_run(std::string(kMaxPublishBytes, 'x'));
  grpc::ClientContext next;
  next.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const grpc::Status status = v1::CorrectionService::NewStub(running_.channel())
                                  ->Publish(&next, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("after decompression"));
}

TEST_F(PublishTest, APartOfAStepNeedsAllThree) {
  const auto fields = [&](const v1::PublishRequest& request) {
    const grpc::Status status = Publish(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    std::vector<std::string> names;
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    for (const auto& each : detail.field_violations()) {
      names.push_back(each.field());
    }
    return names;
  };
  v1::PublishRequest step = FullPublication();
  step.mutable_labels()->set_step(0);
  EXPECT_THAT(fields(step), testing::ElementsAre("partial_sums"));
  v1::PublishRequest with_sums = FullPublication();
  with_sums.mutable_partial_sums();
  EXPECT_THAT(fields(with_sums), testing::ElementsAre("labels.step"));
  v1::PublishRequest with_method = FullPublication();
  with_method.mutable_method()->mutable_preset()->set_name("token_tis");
  EXPECT_THAT(fields(with_method), testing::ElementsAre("labels.step"));
  *step.mutable_method() = with_method.method();
  EXPECT_THAT(fields(step), testing::ElementsAre("partial_sums"));
  // None of them took the id.
  EXPECT_TRUE(Publish(FullPublication()).ok());
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("drift_batches_total{run=\"run\"} 1\n"));
}

TEST_F(PublishTest, ARefusalIsCountedAndLogged) {
  v1::PublishRequest request = FullPublication("the-id", "the-run");
  request.mutable_sums()->set_kept_tokens(101);
  request.mutable_sums()->set_kept_sequences(8);
  ASSERT_FALSE(Publish(request).ok());
  EXPECT_THAT(
      running_.Scrape(),
      HasSubstr("counterweight_requests_total{code=\"INVALID_ARGUMENT\","
                "method=\"Publish\"} 1\n"));
  const std::string log = running_.Stop();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  for (const char* field :
       {R"("level":"info")", R"("request_id":"the-id")", R"("run":"the-run")",
        R"("code":"INVALID_ARGUMENT")", R"("violations":2)",
        R"("message":"2 violations: sums.kept_tokens: must be)",
        R"("tokens":0)"}) {
    EXPECT_THAT(log, HasSubstr(field));
  }
}

TEST_F(PublishTest, AVersionIsNotNeeded) {
  ASSERT_TRUE(Publish(FullPublication("a")).ok());
  v1::PublishRequest request = FullPublication("b");
  request.mutable_labels()->clear_policy_version();
  request.mutable_sums()->clear_staleness();
  ASSERT_TRUE(Publish(request).ok());
  const std::string page = running_.Scrape();
  EXPECT_THAT(page, HasSubstr("drift_policy_version{run=\"run\"} 12\n"));
  EXPECT_THAT(page, HasSubstr("drift_batches_total{run=\"run\"} 2\n"));
}

TEST_F(PublishTest, LogsOneLine) {
  ASSERT_TRUE(Publish(FullPublication("the-id", "the-run")).ok());
  const std::string log = running_.Stop();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  for (const char* field :
       {R"("rpc":"Publish")", R"("request_id":"the-id")", R"("run":"the-run")",
        R"("replica":"replica")", R"("tokens":100)", R"("sequences":9)"}) {
    EXPECT_THAT(log, HasSubstr(field));
  }
}

}  // namespace
}  // namespace counterweight::server
