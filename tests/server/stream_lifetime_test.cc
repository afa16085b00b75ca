// Streams of CorrectStream end and leave nothing behind, whatever clients do.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;

// 4 Mi positions: answers of 20 MiB, more than a connection holds unread.
v1::CorrectRequest LargeRequest() {
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(2 << 20);
  for (v1::Tensor& tensor : *request.mutable_tensors()) {
    const size_t size = tensor.dtype() == v1::D_TYPE_U8 ? 1 : 4;
    tensor.set_data(std::string((size_t{4} << 20) * size, '\0'));
  }
  return request;
}

void ExpectIdle(RunningServer& running) {
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(running.server().requests_in_flight(), 0);
  EXPECT_EQ(running.server().bytes_in_flight(), 0);
}

TEST(StreamLifetime, AStreamWaitsForRoom) {
  Config config = TestConfig();
  config.max_requests_in_flight = 1;
  RunningServer running(config);
  running.backend().Close();
  v1::CorrectResponse first_answer;
  auto first = std::async(std::launch::async, [&] {
    return Stream(running.channel(), SmallRequest(), 0, &first_answer);
  });
  running.backend().WaitForCalls(1);
  StreamCall second(running.channel());
  second.SendHeader(SmallRequest());
  running.backend().Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.IsAdmitted());
  second.SendTensors(SmallRequest());
  EXPECT_EQ(second.ReadAnswer().tensors_size(), 2);
  EXPECT_TRUE(second.Finish().ok());
  ExpectIdle(running);
}

TEST(StreamLifetime, RowsAreComputedWhileOthersArrive) {
  RunningServer running;
  const v1::CorrectRequest request = SmallRequest();
  StreamCall call(running.channel());
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendChunk(2, 0, request.tensors(2).data());
  call.SendChunk(0, 0, request.tensors(0).data());
  call.SendChunk(1, 0, request.tensors(1).data().substr(0, 23));
  // The second of two rows lacks a byte.
  running.backend().WaitForRows(1);
  call.SendChunk(1, 23, request.tensors(1).data().substr(23));
  EXPECT_EQ(call.ReadAnswer().tensors_size(), 2);
  EXPECT_TRUE(call.Finish().ok());
}

TEST(StreamLifetime, WaitingEndsWithAHint) {
  Config config = TestConfig();
  config.max_requests_in_flight = 1;
  config.max_queue_seconds = 0.02;
  RunningServer running(config);
  StreamCall first(running.channel());
  first.SendHeader(SmallRequest());
  ASSERT_TRUE(first.IsAdmitted());
  StreamCall second(running.channel());
  second.SendHeader(SmallRequest());
  const grpc::Status status = second.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GT(DetailOf<google::rpc::RetryInfo>(status).retry_delay().nanos(), 0);
  EXPECT_EQ(PushbackOf(second.context()), "250");
}

// A stream without a header needs little memory, but a client may open any
// number.
TEST(StreamLifetime, OpenStreamsAreBounded) {
  Config config = TestConfig();
  config.max_requests_in_flight = 1;
  config.max_queued_requests = 1;
  RunningServer running(config);
  std::atomic<int> ended = 0;
  std::vector<std::unique_ptr<StreamCall>> silent;
  std::vector<std::future<grpc::StatusCode>> codes;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<StreamCall>(running.channel()));
    silent.back()->Open();
    codes.push_back(
        std::async(std::launch::async, [&, call = silent.back().get()] {
          const grpc::StatusCode code = call->Finish().error_code();
          ++ended;
          return code;
        }));
  }
  // All but two are refused, or closed, without waiting for a timeout.
  EXPECT_TRUE(Eventually([&] { return ended == 18; }));
  running.SetCallTimeouts(0.5);
  int refused = 0;
  for (auto& code : codes) {
    refused +=
        static_cast<int>(code.get() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_EQ(refused, 18);
}

// With room for one waiting stream, the next one waits as soon as the first has
// left.
TEST(StreamLifetime, AStreamThatLeavesTheQueueMakesRoomThere) {
  Config config = TestConfig();
  config.max_queue_seconds = 3600;  // its own time is not what ends its wait
  config.max_requests_in_flight = 1;
  config.max_queued_requests = 1;
  RunningServer running(config);
  running.backend().Close();
  v1::CorrectResponse answer;
  auto first = std::async(std::launch::async, [&] {
    return Stream(running.channel(), SmallRequest(), 0, &answer);
  });
  running.backend().WaitForCalls(1);
  for (int i = 0; i < 5; ++i) {
    StreamCall waits(running.channel());
    waits.SendHeader(SmallRequest());
    ASSERT_TRUE(
        Eventually([&] { return running.server().requests_queued() > 0; }));
    waits.context().TryCancel();
    EXPECT_EQ(waits.Finish().error_code(), grpc::StatusCode::CANCELLED);
    ASSERT_TRUE(
        Eventually([&] { return running.server().requests_queued() == 0; }));
  }
  running.backend().Open();
  EXPECT_TRUE(first.get().ok());
}

// Input and output are reserved before the first byte arrives.
TEST(StreamLifetime, ABatchReservesItsOutputsToo) {
  v1::CorrectRequest request = LargeRequest();
  constexpr int64_t kPositions = int64_t{4} << 20;
  constexpr int64_t kReserved = kPositions * (4 + 4 + 1 + 4 + 1);
  int64_t reserved = 0;
  {
    RunningServer running;
    StreamCall call(running.channel());
    call.SendHeader(request);
    ASSERT_TRUE(call.IsAdmitted());
    reserved = running.server().bytes_in_flight();
    EXPECT_GE(reserved, kReserved);
    EXPECT_LT(reserved, kReserved + kReserved / 100);
  }
  for (const int64_t less : {0, 1}) {
    Config config = TestConfig();
    config.max_bytes_in_flight = reserved - less;
    RunningServer running(config);
    StreamCall call(running.channel());
    call.SendHeader(request);
    EXPECT_EQ(call.IsAdmitted(), less == 0);
  }
}

// Places of arrivals are for calls with a header that has not arrived.
TEST(StreamLifetime, AStreamWithAHeaderIsNoArrivalAnyMore) {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  RunningServer running(config);
  StreamCall call(running.channel());
  call.SendHeader(SmallRequest());
  ASSERT_TRUE(call.IsAdmitted());
  // The admission may arrive before the count falls.
  EXPECT_TRUE(Eventually([&] {
    return running.Scrape().find("\ncounterweight_arriving_requests 0\n") !=
           std::string::npos;
  }));
}

TEST(StreamLifetime, SilentStreamsTimeOut) {
  RunningServer running;
  for (const bool has_header : {true, false}) {
    StreamCall call(running.channel());
    if (has_header) {
      call.SendHeader(SmallRequest());
      EXPECT_TRUE(call.IsAdmitted());
    }
    running.SetCallTimeouts(0.5);
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_THAT(status.error_message(), HasSubstr("--stream_timeout"));
  }
  ExpectIdle(running);
}

// The sender is never silent; only the byte count ends it.
TEST(StreamLifetime, SlowSendersTimeOut) {
  Config config = TestConfig();
  config.min_stream_bytes_per_second = int64_t{1} << 30;
  RunningServer running(config);
  StreamCall call(running.channel());
  call.SendHeader(LargeRequest());
  ASSERT_TRUE(call.IsAdmitted());
  running.SetCallTimeouts(0.5);
  uint64_t sent = 0;
  while (sent < 16 << 20 && call.SendChunk(0, sent, "x")) ++sent;
  EXPECT_LT(sent, 16U << 20) << "the tensor was whole before";
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectIdle(running);
}

TEST(StreamLifetime, ReadersThatStallAreCutOff) {
  RunningServer running;
  running.backend().Close();
  const v1::CorrectRequest request = LargeRequest();
  StreamCall call(running.channel());
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendTensors(request, 2 << 20);
  running.backend().WaitForCalls(1);
  running.SetCallTimeouts(0.5);
  running.backend().Open();
  // Nothing is read until the server has given up.
  ExpectIdle(running);
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(StreamLifetime, DeadlinesHoldInEveryState) {
  RunningServer running;
  running.backend().Close();
  for (const int steps : {0, 1, 2}) {
    StreamCall call(running.channel());
    call.context().set_deadline(std::chrono::system_clock::now() +
                                std::chrono::milliseconds(50));
    if (steps > 0) call.SendHeader(SmallRequest());
    if (steps > 1 && call.IsAdmitted()) call.SendTensors(SmallRequest());
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
        << steps;
  }
  running.backend().Open();
  ExpectIdle(running);
}

TEST(StreamLifetime, AnAdmittedStreamOutlivesTheRefusalOfNewOnes) {
  RunningServer running;
  const v1::CorrectRequest request = SmallRequest();
  StreamCall admitted(running.channel());
  admitted.SendHeader(request);
  ASSERT_TRUE(admitted.IsAdmitted());
  running.server().RefuseNewWork();
  StreamCall late(running.channel());
  late.SendHeader(request);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  admitted.SendTensors(request);
  EXPECT_EQ(admitted.ReadAnswer().tensors_size(), 2);
  EXPECT_TRUE(admitted.Finish().ok());
  ExpectIdle(running);
}

// Clients leave after any number of steps, several at a time, with backends
// that answer at once or when the client is gone.
TEST(StreamLifetime, AThousandCancelledStreamsLeaveNothing) {
  RunningServer running;
  const v1::CorrectRequest request = SmallRequest();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int i = 0; i < 250; ++i) {
        StreamCall call(running.channel());
        const uint32_t steps = random() % 7;
        if (steps > 0) call.SendHeader(request);
        if (steps > 1) call.IsAdmitted();
        if (steps > 2) call.SendChunk(0, 0, request.tensors(0).data());
        if (steps > 3) call.SendChunk(1, 0, request.tensors(1).data());
        if (steps > 4) call.SendChunk(2, 0, request.tensors(2).data());
        v1::CorrectStreamResponse frame;
        if (steps > 5) call.Read(&frame);
        // The destructor cancels the call.
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectIdle(running);
  v1::CorrectResponse response;
  EXPECT_TRUE(Stream(running.channel(), request, 0, &response).ok());
}

TEST(StreamLifetime, ARunIsToldThatItsClientLeft) {
  RunningServer running;
  running.backend().Close();
  StreamCall call(running.channel());
  call.SendHeader(SmallRequest());
  ASSERT_TRUE(call.IsAdmitted());
  call.SendTensors(SmallRequest());
  running.backend().WaitForCalls(1);
  EXPECT_FALSE(running.backend().IsAskedToStop());
  call.context().TryCancel();
  ASSERT_TRUE(Eventually([&] { return running.backend().IsAskedToStop(); }));
  running.backend().Open();
  ExpectIdle(running);
}

TEST(StreamLifetime, ClientsThatLeaveWhileComputingLeaveNothing) {
  RunningServer running;
  for (int i = 0; i < 20; ++i) {
    running.backend().Close();
    {
      StreamCall call(running.channel());
      call.SendHeader(SmallRequest());
      ASSERT_TRUE(call.IsAdmitted());
      call.SendTensors(SmallRequest());
      running.backend().WaitForCalls(1);
    }
    running.backend().Open();
    ExpectIdle(running);
  }
}

}  // namespace
}  // namespace counterweight::server
