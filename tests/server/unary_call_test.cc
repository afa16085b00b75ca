// Unary calls are timed from their headers to the end of their answer.
#include "server/call/unary_call.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;

Config ShortTimeout() {
  Config config = TestConfig();
  config.unary_timeout_s = 0.5;
  return config;
}

// 4 Mi positions: an answer of 20 MiB, more than a connection holds unread.
std::string LargeMessage() {
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(2 << 20);
  for (v1::Tensor& tensor : *request.mutable_tensors()) {
    const size_t size = tensor.dtype() == v1::D_TYPE_U8 ? 1 : 4;
    tensor.set_data(std::string((size_t{4} << 20) * size, '\0'));
  }
  return request.SerializeAsString();
}

TEST(UnaryCall, ServesWhatComesInParts) {
  RunningServer running;
  RawUnary call(running.channel());
  EXPECT_TRUE(call.Send(SmallRequest().SerializeAsString()));
  EXPECT_TRUE(call.Finish().ok());
}

TEST(UnaryCall, ARequestThatDoesNotArriveTimesOut) {
  RunningServer running(ShortTimeout());
  RawUnary call(running.channel());
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("--unary_timeout"));
  EXPECT_THAT(running.Stop(), HasSubstr("DEADLINE_EXCEEDED"));
}

TEST(UnaryCall, ACallWithoutAMessageIsAnInvalidArgument) {
  RunningServer running;
  RawUnary call(running.channel());
  call.CloseWriting();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// gRPC and the budget hold it until the client reads.
TEST(UnaryCall, AnUnreadAnswerStaysInTheBudgetUntilItsTimeIsUp) {
  RunningServer running;
  running.backend().Close();
  RawUnary call(running.channel());
  ASSERT_TRUE(call.Send(LargeMessage()));
  running.backend().WaitForCalls(1);
  running.backend().Open();
  // The admitted bytes exceed the answer; the difference is released first.
  constexpr int64_t kAnswerBytes = int64_t{20} << 20;
  ASSERT_TRUE(Eventually([&] {
    return running.server().bytes_in_flight() <= kAnswerBytes + (1 << 20);
  }));
  EXPECT_GE(running.server().bytes_in_flight(), kAnswerBytes);
  EXPECT_EQ(running.server().requests_in_flight(), 1);
  EXPECT_FALSE(running.server().WaitUntilIdle(std::chrono::nanoseconds(0)));
  running.SetCallTimeouts(0.5);
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(running.server().bytes_in_flight(), 0);
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// Gauges show admission's state.
TEST(UnaryCall, GaugesReturnToZero) {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  RunningServer running(config);
  EXPECT_TRUE(running.Correct(SmallRequest()).ok());
  v1::CorrectRequest wrong = SmallRequest();
  wrong.clear_method();
  EXPECT_FALSE(running.Correct(wrong).ok());
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
  const std::string page = running.Scrape();
  for (const char* gauge :
       {"requests_in_flight", "bytes_in_flight", "requests_queued",
        "admitted_bytes", "waiting_bytes", "unparsed_bytes",
        "arriving_requests", "tasks_waiting"}) {
    EXPECT_THAT(page,
                HasSubstr(std::string("\ncounterweight_") + gauge + " 0\n"));
  }
}

// With one worker, a second message waits for it unparsed.
TEST(UnaryCall, AMessageIsBesideTheTransportsOwnUntilItIsParsed) {
  Config config = TestConfig();
  config.threads = 1;
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  RunningServer running(config);
  const auto shows = [&](const std::string& gauge, size_t value) {
    return running.Scrape().find("\ncounterweight_" + gauge + " " +
                                 std::to_string(value) + "\n") !=
           std::string::npos;
  };
  running.backend().Close();
  auto first = std::async(std::launch::async,
                          [&] { return running.Correct(SmallRequest()); });
  running.backend().WaitForCalls(1);
  EXPECT_TRUE(shows("unparsed_bytes", 0));
  auto second = std::async(std::launch::async,
                           [&] { return running.Correct(SmallRequest()); });
  ASSERT_TRUE(Eventually([&] { return shows("tasks_waiting", 1); }));
  EXPECT_TRUE(shows("unparsed_bytes", SmallRequest().ByteSizeLong()));
  running.backend().Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(shows("unparsed_bytes", 0));
}

TEST(UnaryCall, AClientThatLeavesGivesUpItsPlaceInTheQueue) {
  Config config = TestConfig();
  config.max_requests_in_flight = 1;
  config.max_queued_requests = 1;
  RunningServer running(config);
  running.backend().Close();
  auto first = std::async(std::launch::async,
                          [&] { return running.Correct(SmallRequest()); });
  running.backend().WaitForCalls(1);
  {
    RawUnary second(running.channel());
    ASSERT_TRUE(second.Send(SmallRequest().SerializeAsString()));
    ASSERT_TRUE(
        Eventually([&] { return running.server().requests_queued() > 0; }));
    second.context().TryCancel();
    EXPECT_EQ(second.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ASSERT_TRUE(
      Eventually([&] { return running.server().requests_queued() == 0; }));
  auto third = std::async(std::launch::async,
                          [&] { return running.Correct(SmallRequest()); });
  ASSERT_TRUE(
      Eventually([&] { return running.server().requests_queued() > 0; }));
  running.backend().Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(third.get().ok());
}

}  // namespace
}  // namespace counterweight::server
