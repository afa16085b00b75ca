// A computation that lasts longer than several keepalive pings of both sides.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client_cpp/cut_connection.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

// Only a hang reaches it.
constexpr std::chrono::seconds kPingDeadline{60};

// Counts the pings in what one side sends, RFC 9113: frames that begin with
// their payload's length, type and flags. Answers to pings do not count.
class PingCounter {
 public:
  // A client sends a preface before its first frame.
  explicit PingCounter(bool is_client) : skip_(is_client ? 24 : 0) {}

  void Read(const char* data, size_t count) {
    constexpr uint8_t kPing = 6;
    constexpr uint8_t kAck = 1;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < count; ++i) {
      if (skip_ > 0) {
        --skip_;
        continue;
      }
      head_.push_back(static_cast<uint8_t>(data[i]));
      if (head_.size() < 9) continue;
      skip_ = size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2];
      if (head_[3] == kPing && (head_[4] & kAck) == 0) ++pings_;
      head_.clear();
    }
    changed_.notify_all();
  }

  int pings() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pings_;
  }

  // False if they do not arrive.
  bool WaitFor(int pings) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kPingDeadline,
                             [&] { return pings_ >= pings; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t skip_;
  std::vector<uint8_t> head_;
  int pings_ = 0;
};

class LongComputation : public testing::TestWithParam<Transport> {};

TEST_P(LongComputation, GoesOnThroughThePingsOfBothSides) {
  server::Config config = server::TestConfig();
  config.keepalive_interval_s = 1;
  config.keepalive_timeout_s = 20;
  server::RunningServer running(config);
  PingCounter of_client(/*is_client=*/true);
  PingCounter of_server(/*is_client=*/false);
  const CutConnection watched(
      running.server().addresses().front(), SIZE_MAX, SIZE_MAX,
      {.up = [&](const char* data,
                 size_t count) { of_client.Read(data, count); },
       .down = [&](const char* data,
                   size_t count) { of_server.Read(data, count); }});
  Options options;
  options.transport = GetParam();
  options.max_attempts = 1;
  options.keepalive_interval = std::chrono::seconds(1);
  options.keepalive_timeout = std::chrono::seconds(20);
  Client client(watched.target(), options);
  const TestBatch batch(4, 16);

  running.backend().Close();
  Response response;
  std::future<Status> answered = std::async(std::launch::async, [&] {
    return client.Correct(batch.Weights(), &response);
  });
  running.backend().WaitForCalls(1);
  // gRPC sends pings of its own beside keepalive's while data moves; now none
  // does. Two are forgiven, and the third at the wrong time ends a connection.
  const int client_before = of_client.pings();
  const int server_before = of_server.pings();
  EXPECT_TRUE(of_client.WaitFor(client_before + 4));
  EXPECT_TRUE(of_server.WaitFor(server_before + 4));
  running.backend().Open();
  const Status status = answered.get();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.attempts, 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, LongComputation,
                         testing::Values(Transport::kUnary, Transport::kStream),
                         [](const auto& each) {
                           return each.param == Transport::kUnary ? "Unary"
                                                                  : "Stream";
                         });

}  // namespace
}  // namespace counterweight::client
