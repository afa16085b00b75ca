#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"

namespace counterweight::server {
namespace {

constexpr const char* kService = "counterweight.v1.CorrectionService";

TEST(Drain, HealthTurnsBeforeAnythingIsRefused) {
  RunningServer running;
  EXPECT_EQ(running.Health(""), 1);
  EXPECT_EQ(running.Health(kService), 1);
  EXPECT_EQ(running.Health("no.such.Service"), -1);
  running.server().AnnounceDrain();
  EXPECT_EQ(running.Health(""), 2);
  EXPECT_EQ(running.Health(kService), 2);
  EXPECT_TRUE(running.Correct(SmallRequest()).ok());
}

TEST(Drain, NewWorkIsRefusedAndOldWorkIsFinished) {
  RunningServer running;
  running.backend().Close();
  auto in_flight = std::async(std::launch::async,
                              [&] { return running.Correct(SmallRequest()); });
  running.backend().WaitForCalls(1);
  running.server().RefuseNewWork();

  grpc::ClientContext context;
  v1::CorrectResponse response;
  const grpc::Status refused =
      running.Correct(SmallRequest(), &response, &context);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(refused).retry_delay().seconds(),
            1);
  EXPECT_EQ(PushbackOf(context), "1000");
  EXPECT_FALSE(running.server().WaitUntilIdle(std::chrono::nanoseconds(0)));
  EXPECT_EQ(running.server().requests_in_flight(), 1);

  running.backend().Open();
  EXPECT_TRUE(in_flight.get().ok());
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
}

TEST(Drain, DestructionWaitsForWorkInFlight) {
  auto running = std::make_unique<RunningServer>();
  RunningServer& server = *running;
  server.backend().Close();
  auto in_flight = std::async(std::launch::async,
                              [&] { return server.Correct(SmallRequest()); });
  server.backend().WaitForCalls(1);
  auto destroyed = std::async(std::launch::async, [&] {
    // The client's stream ends with it, so the answer must have arrived by
    // then.
    server.server().RefuseNewWork();
    while (!server.server().WaitUntilIdle(std::chrono::minutes(1))) {
    }
  });
  server.backend().Open();
  EXPECT_TRUE(in_flight.get().ok());
  destroyed.get();
  running.reset();
}

// gRPC releases a stream's timer some time after it is done with the stream.
TEST(Drain, EveryStreamIsLoggedBeforeDestructionEnds) {
  constexpr int kStreams = 64;
  for (int round = 0; round < 100; ++round) {
    RunningServer running;
    std::vector<std::unique_ptr<StreamCall>> calls;
    for (int i = 0; i < kStreams; ++i) {
      calls.push_back(std::make_unique<StreamCall>(running.channel()));
      calls.back()->SendChunk(0, 0, "no header");
    }
    for (const auto& call : calls) {
      EXPECT_EQ(call->Finish().error_code(),
                grpc::StatusCode::INVALID_ARGUMENT);
    }
    const std::string log = running.Stop();
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), kStreams);
  }
}

}  // namespace
}  // namespace counterweight::server
