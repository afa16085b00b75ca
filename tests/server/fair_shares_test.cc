// The requests of one peer do not keep another peer out. TCP and the Unix
// socket are two peers.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/call/executor.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"
#include "tests/server/temporary_folder.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

// A server on both, with a separate channel for the second peer.
struct TwoPeers {
  explicit TwoPeers(Config config = TestConfig())
      : running(Listening(std::move(config), folder.path() + "/s")),
        unix_channel(ConnectTo("unix:" + folder.path() + "/s")) {}

  static Config Listening(Config config, const std::string& path) {
    config.listen.push_back({.host = "", .port = 0, .path = path});
    return config;
  }

  // Returns when the server has read what was sent over the first peer's
  // connection, which keeps the order. Streams that sent nothing within a
  // quarter of a second are closed.
  void AwaitSentFrames() { EXPECT_EQ(running.Health(""), 1); }

  TemporaryFolder folder;
  RunningServer running;
  std::shared_ptr<grpc::Channel> unix_channel;
};

std::vector<std::unique_ptr<StreamCall>> SilentStreams(TwoPeers& peers,
                                                       int count) {
  std::vector<std::unique_ptr<StreamCall>> calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(std::make_unique<StreamCall>(peers.running.channel()));
    calls.back()->Open();
  }
  return calls;
}

TEST(FairShares, SilentCallsGiveWayToAnotherPeer) {
  Config config = TestConfig();
  config.max_requests_in_flight = 2;
  config.max_queued_requests = 2;
  TwoPeers peers(config);
  auto silent = SilentStreams(peers, 4);
  // The headers of an idle call arrive at an unknown time.
  StreamCall other(peers.unix_channel);
  other.SendHeader(SmallRequest());
  EXPECT_TRUE(other.IsAdmitted());
  v1::CorrectResponse answer;
  EXPECT_TRUE(Stream(peers.unix_channel, SmallRequest(), 0, &answer).ok());
}

// A stalled stream loses its place long before --stream_timeout. The timeout
// ends the streams that keep theirs, once it is short.
TEST(FairShares, StalledStreamsGiveWayToAnotherPeer) {
  Config config = TestConfig();
  config.max_requests_in_flight = 4;
  TwoPeers peers(config);
  std::vector<std::unique_ptr<StreamCall>> stalled;
  for (int i = 0; i < 4; ++i) {
    stalled.push_back(std::make_unique<StreamCall>(peers.running.channel()));
    stalled.back()->SendHeader(SmallRequest());
    ASSERT_TRUE(stalled.back()->IsAdmitted());
  }
  v1::CorrectResponse answer;
  EXPECT_TRUE(Stream(peers.unix_channel, SmallRequest(), 0, &answer).ok());
  peers.running.SetCallTimeouts(0.5);
  int gave_way = 0;
  for (const auto& call : stalled) {
    gave_way += static_cast<int>(call->Finish().error_code() ==
                                 grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_GE(gave_way, 1);
}

// They sent the bytes of several seconds at once; the other peer has to wait.
TEST(FairShares, StreamsThatMoveKeepTheirPlacesFromOthers) {
  Config config = TestConfig();
  config.max_requests_in_flight = 2;
  config.max_queue_seconds = 2;
  config.min_stream_bytes_per_second = 1;
  TwoPeers peers(config);
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(1000);
  const std::string bytes(8000, '\0');  // of 17000 bytes in all
  std::vector<std::unique_ptr<StreamCall>> moving;
  for (int i = 0; i < 2; ++i) {
    moving.push_back(std::make_unique<StreamCall>(peers.running.channel()));
    moving.back()->SendHeader(request);
    ASSERT_TRUE(moving.back()->IsAdmitted());
    moving.back()->SendChunk(0, 0, bytes);
  }
  peers.AwaitSentFrames();
  v1::CorrectResponse answer;
  EXPECT_EQ(Stream(peers.unix_channel, SmallRequest(), 0, &answer).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& call : moving) {
    call->SendChunk(1, 0, bytes);
    call->SendChunk(2, 0, std::string(2000, '\1'));
    EXPECT_EQ(call->ReadAnswer().tensors_size(), 2);
  }
}

// No other peer waits, so only a stream that sent nothing is closed.
TEST(FairShares, SlowStreamsKeepTheirPlacesFromTheirOwnPeer) {
  Config config = TestConfig();
  config.max_requests_in_flight = 2;
  config.max_queue_seconds = 2;
  TwoPeers peers(config);
  std::vector<std::unique_ptr<StreamCall>> stalled;
  for (int i = 0; i < 2; ++i) {
    stalled.push_back(std::make_unique<StreamCall>(peers.running.channel()));
    stalled.back()->SendHeader(SmallRequest());
    ASSERT_TRUE(stalled.back()->IsAdmitted());
    stalled.back()->SendChunk(2, 0, SmallRequest().tensors(2).data());
  }
  peers.AwaitSentFrames();
  EXPECT_EQ(peers.running.Correct(SmallRequest()).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const uint32_t tensor : {0U, 1U}) {
    stalled.front()->SendChunk(
        tensor, 0, SmallRequest().tensors(static_cast<int>(tensor)).data());
  }
  EXPECT_EQ(stalled.front()->ReadAnswer().tensors_size(), 2);
}

// A sixtieth of what it reserved per second, over windows of half a second,
// though --min_stream_bytes_per_second is 1.
TEST(FairShares, AStreamOwesProgressInProportionToWhatItReserved) {
  Config config = TestConfig();
  config.min_stream_bytes_per_second = 1;
  TwoPeers peers(config);
  // 4 Mi positions reserve more than 56 MB: a megabyte per second is owed.
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(2 << 20);
  StreamCall slow(peers.running.channel());
  slow.SendHeader(request);
  ASSERT_TRUE(slow.IsAdmitted());
  peers.running.SetCallTimeouts(0.5);
  // Frames of one byte never reach that number.
  uint64_t sent = 0;
  while (sent < 16 << 20 && slow.SendChunk(0, sent, "x")) ++sent;
  EXPECT_LT(sent, 16U << 20) << "the tensor was whole before";
  EXPECT_EQ(slow.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

// In the order of arrival the eleventh batch would be after ten. In turns it is
// after the one that computes, and after one more each time that its own stages
// last for Executor::kTurn, which they do on a busy machine.
constexpr int kFewOfTen = 5;

// Ten earlier slow batches of one peer do not occupy all workers.
TEST(FairShares, WorkersTakeTurnsBetweenPeers) {
  Config config = TestConfig();
  config.threads = 1;
  TwoPeers peers(config);
  peers.running.backend().Close();
  std::vector<std::future<grpc::Status>> greedy;
  for (int i = 0; i < 10; ++i) {
    greedy.push_back(std::async(std::launch::async, [&] {
      return peers.running.Correct(SmallRequest());
    }));
  }
  // All but the one that computes, and then the other peer's, too.
  peers.running.backend().WaitForCalls(1);
  const auto waiting = [&] { return peers.running.server().waiting_tasks(); };
  ASSERT_TRUE(Eventually([&] { return waiting() == 9; }));
  RawUnary modest(peers.unix_channel);
  ASSERT_TRUE(modest.Send(SmallRequest().SerializeAsString()));
  ASSERT_TRUE(Eventually([&] { return waiting() == 10; }));
  peers.running.backend().LetPass(kFewOfTen);
  EXPECT_TRUE(modest.Finish().ok());
  peers.running.backend().Open();
  for (auto& each : greedy) EXPECT_TRUE(each.get().ok());
}

// A machine's trainers are one peer; each has its turn by the name that it
// gives.
TEST(FairShares, WorkersTakeTurnsBetweenClientsOfAPeer) {
  Config config = TestConfig();
  config.threads = 1;
  RunningServer running(config);
  running.backend().Close();
  const auto correct = [&](const std::string& name) {
    return std::async(std::launch::async, [&running, name] {
      grpc::ClientContext context;
      context.AddMetadata("counterweight-client", name);
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::minutes(1));
      v1::CorrectResponse response;
      return running.Correct(SmallRequest(), &response, &context);
    });
  };
  std::vector<std::future<grpc::Status>> greedy;
  for (int i = 0; i < 10; ++i) greedy.push_back(correct("greedy"));
  // All but the one that computes, and then the other client's, too.
  running.backend().WaitForCalls(1);
  const auto waiting = [&] { return running.server().waiting_tasks(); };
  ASSERT_TRUE(Eventually([&] { return waiting() == 9; }));
  std::future<grpc::Status> modest = correct("modest");
  ASSERT_TRUE(Eventually([&] { return waiting() == 10; }));
  running.backend().LetPass(kFewOfTen);
  EXPECT_TRUE(modest.get().ok());
  running.backend().Open();
  for (auto& each : greedy) EXPECT_TRUE(each.get().ok());
}

// The batches have 50 bytes and compute for long: the second one waits.
TEST(FairShares, BatchesOfManyEmptySequencesLeaveAWorkerToOthers) {
  Config config = TestConfig();
  config.threads = 2;
  RunningServer running(config);
  running.backend().Close();
  v1::CorrectRequest empty = SmallRequest();
  v1::PaddedLayout* const layout = empty.mutable_layout()->mutable_padded();
  layout->set_num_sequences(1'000'000);
  layout->set_length(0);
  for (v1::Tensor& tensor : *empty.mutable_tensors()) tensor.clear_data();
  std::vector<std::future<grpc::Status>> long_ones;
  for (int i = 0; i < 2; ++i) {
    long_ones.push_back(
        std::async(std::launch::async, [&] { return running.Correct(empty); }));
  }
  ASSERT_TRUE(
      Eventually([&] { return running.server().requests_in_flight() == 2; }));
  // Its decoding is the next task of this client's, and needs no backend.
  EXPECT_EQ(running.Correct(v1::CorrectRequest()).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  running.backend().Open();
  for (auto& each : long_ones) EXPECT_TRUE(each.get().ok());
}

// With one worker, another peer's batch that arrived during a long computation
// is decoded before the first answer is encoded.
TEST(FairShares, OthersHaveTheirTurnBetweenTheStagesOfABatch) {
  Config config = TestConfig();
  config.threads = 1;
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  TwoPeers peers(config);
  FakeBackend& backend = peers.running.backend();
  backend.Close();
  auto first = std::async(std::launch::async, [&] {
    return peers.running.Correct(SmallRequest());
  });
  backend.WaitForCalls(1);
  const auto turn_is_over = Executor::Clock::now() + Executor::kTurn;
  RawUnary other(peers.unix_channel);
  ASSERT_TRUE(other.Send(v1::CorrectRequest().SerializeAsString()));
  while (peers.running.Scrape().find("\ncounterweight_tasks_waiting 1\n") ==
             std::string::npos ||
         Executor::Clock::now() < turn_is_over) {
  }
  backend.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(other.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const std::string log = peers.running.Stop();
  EXPECT_LT(log.find("INVALID_ARGUMENT"), log.find(R"("code":"OK")"));
}

}  // namespace
}  // namespace counterweight::server
