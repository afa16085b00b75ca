// The cost of many scrapes at once.
#include "server/observe/metrics_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "server/config.h"
#include "server/observe/request_log.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"

namespace counterweight::server {
namespace {

// Counts its pages; the first one is made when the test says so.
class CountedPages : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::unique_lock lock(mutex_);
    ++made_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return go_on_; });
    return {};
  }

  void WaitForTheFirst() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return made_ > 0; });
  }
  void GoOn() {
    const std::lock_guard lock(mutex_);
    go_on_ = true;
    changed_.notify_all();
  }
  int made() const {
    const std::lock_guard lock(mutex_);
    return made_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int made_ = 0;  // guarded by mutex_, as is go_on_
  bool go_on_ = false;
};

FileDescriptor Ask(uint16_t port) {
  FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Only a hang reaches it.
  timeval limit{.tv_sec = 60, .tv_usec = 0};
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
  constexpr std::string_view kQuestion = "GET /metrics HTTP/1.1\r\n\r\n";
  send(client.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL);
  return client;
}

bool IsAnswered(const FileDescriptor& client) {
  std::array<char, 12> begin{};
  return recv(client.get(), begin.data(), begin.size(), MSG_WAITALL) ==
             static_cast<ssize_t>(begin.size()) &&
         std::string_view(begin.data(), begin.size()) == "HTTP/1.1 200";
}

class MetricsServerTest : public testing::Test {
 protected:
  RequestLog log_{std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::null_sink_mt>())};
  const std::unique_ptr<Access> access_ = Access::Load(Config{}, &log_).value();
  const std::shared_ptr<CountedPages> pages_ = std::make_shared<CountedPages>();
  const std::atomic<Health> health_ = Health::kReady;
  uint16_t port_ = 0;
  const std::unique_ptr<WebServer> web_ =
      ServeMetrics({.host = "127.0.0.1", .port = 0, .path = ""},
                   /*with_tls=*/false,
                   {.metrics = {pages_},
                    .page = nullptr,
                    .health = &health_,
                    .access = access_.get()},
                   &port_)
          .value();
};

TEST_F(MetricsServerTest, ScrapesAtOnceShareAPage) {
  const FileDescriptor first = Ask(port_);
  pages_->WaitForTheFirst();
  // They come too late for the first page, and together.
  std::vector<FileDescriptor> others;
  for (int i = 0; i < 60; ++i) others.push_back(Ask(port_));
  pages_->GoOn();
  EXPECT_TRUE(IsAnswered(first));
  for (const FileDescriptor& each : others) EXPECT_TRUE(IsAnswered(each));
  // They are accepted by sixteen, and each lot takes a turn or two.
  EXPECT_GE(pages_->made(), 2);
  EXPECT_LE(pages_->made(), 12);
}

TEST_F(MetricsServerTest, APageIsNotOlderThanItsRequest) {
  pages_->GoOn();
  for (int i = 1; i <= 10; ++i) {
    EXPECT_TRUE(IsAnswered(Ask(port_)));
    EXPECT_EQ(pages_->made(), i);
  }
}

}  // namespace
}  // namespace counterweight::server
