// Clients of the metrics port that are slow, silent or greedy.
#include "server/observe/web_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/tcp_socket.h"
#include "tests/server/descriptors.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";
// Only a hang reaches it.
constexpr int kDeadlineSeconds = 60;

class WebServerTest : public testing::Test {
 protected:
  static constexpr size_t kBigBytes = size_t{16} << 20;
  static constexpr size_t kPageBytes = size_t{1} << 20;

  // /wait occupies the server's thread until the test goes on.
  static inline std::binary_semaphore waits_{0};
  static inline std::binary_semaphore go_on_{0};

  static std::string Answer(const WebRequest& request) {
    if (request.path == "/wait") {
      waits_.release();
      go_on_.acquire();
    }
    if (request.path == "/big") return std::string(kBigBytes, 'x');
    if (request.path == "/page") return std::string(kPageBytes, 'x');
    return std::string(request.path);
  }

  static FileDescriptor NewClient() {
    FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    timeval limit{.tv_sec = kDeadlineSeconds, .tv_usec = 0};
    setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return client;
  }

  void ConnectTo(const FileDescriptor& client) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) !=
        0) {
      throw std::runtime_error("cannot connect");
    }
  }

  FileDescriptor Connect() const {
    FileDescriptor client = NewClient();
    ConnectTo(client);
    return client;
  }

  // A connection that has sent `text`.
  FileDescriptor Begin(std::string_view text) const {
    FileDescriptor client = Connect();
    Send(text, client);
    return client;
  }
  static void Send(std::string_view text, const FileDescriptor& client) {
    send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  // All that the server sends until it closes.
  static std::string ReadAll(const FileDescriptor& client) {
    std::string all;
    std::array<char, 65536> part{};
    for (ssize_t size = 0;
         (size = recv(client.get(), part.data(), part.size(), 0)) > 0;) {
      all.append(part.data(), static_cast<size_t>(size));
    }
    return all;
  }

  static bool IsOpen(const FileDescriptor& client) {
    char byte = 0;
    return recv(client.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  WebServer Serve() {
    FileDescriptor listening;
    const std::string error = ListenTcp(
        {.host = "127.0.0.1", .port = 0, .path = ""}, &listening, &port_);
    if (!error.empty()) throw std::runtime_error(error);
    return WebServer(std::move(listening), Answer, nullptr);
  }

  uint16_t port_ = 0;
  WebServer server_ = Serve();
};

TEST_F(WebServerTest, AnswersAndCloses) {
  EXPECT_EQ(ReadAll(Begin(kRequest)), "/metrics");
  EXPECT_EQ(ReadAll(Begin("GET /big HTTP/1.1\r\n\r\n")).size(), kBigBytes);
}

TEST_F(WebServerTest, AClientMayEndItsSideFirst) {
  const FileDescriptor client = Begin("GET /big HTTP/1.1\r\n\r\n");
  shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(ReadAll(client).size(), kBigBytes);
}

TEST_F(WebServerTest, ItMayEndItWhileItsRequestWaits) {
  const FileDescriptor first = Begin("GET /wait HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(waits_.try_acquire_for(std::chrono::seconds(kDeadlineSeconds)));
  std::vector<FileDescriptor> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(Begin(kRequest));
    shutdown(clients.back().get(), SHUT_WR);
  }
  go_on_.release();
  EXPECT_EQ(ReadAll(first), "/wait");
  for (const FileDescriptor& client : clients) {
    EXPECT_EQ(ReadAll(client), "/metrics");
  }
}

TEST_F(WebServerTest, ABodyDoesNotCostTheAnswer) {
  EXPECT_EQ(ReadAll(Begin(std::string(kRequest) + std::string(100'000, 'x'))),
            "/metrics");
}

TEST_F(WebServerTest, OtherThingsThanRequestsAreRefused) {
  EXPECT_TRUE(ReadAll(Begin("\x16\x03\x01 hello\r\n\r\n"))
                  .starts_with("HTTP/1.1 400 "));
  const std::string filler(2 * kMaxHeadBytes, 'x');
  EXPECT_TRUE(ReadAll(Begin("GET / HTTP/1.1\r\nA: " + filler))
                  .starts_with("HTTP/1.1 431 "));
}

TEST_F(WebServerTest, SilentConnectionsDelayNoAnswer) {
  // On a machine that stalls for seconds they are closed earlier.
  bool at_once = false;
  for (int attempt = 0; attempt < 5 && !at_once; ++attempt) {
    std::vector<FileDescriptor> silent;
    for (int i = 0; i < 100; ++i) {
      silent.push_back(Begin(i % 2 == 0 ? "" : "GET / HTTP/1.1\r\n"));
    }
    EXPECT_EQ(ReadAll(Begin(kRequest)), "/metrics");
    at_once = std::all_of(silent.begin(), silent.end(), IsOpen);
  }
  EXPECT_TRUE(at_once);
}

TEST_F(WebServerTest, TheOldestGivesWay) {
  bool as_said = false;
  for (int attempt = 0; attempt < 5 && !as_said; ++attempt) {
    std::vector<FileDescriptor> silent;
    for (size_t i = 0; i < kMaxWebConnections; ++i) {
      silent.push_back(Connect());
    }
    EXPECT_EQ(ReadAll(Begin(kRequest)), "/metrics");
    as_said = !IsOpen(silent.front()) &&
              std::all_of(silent.begin() + 1, silent.end(), IsOpen);
  }
  EXPECT_TRUE(as_said);
}

TEST_F(WebServerTest, BeforeItThoseDoThatDoNotRead) {
  bool as_said = false;
  for (int attempt = 0; attempt < 5 && !as_said; ++attempt) {
    const FileDescriptor oldest = Connect();
    const FileDescriptor greedy = Begin("GET /big HTTP/1.1\r\n\r\n");
    // Longer than a client that reads needs, less than the silent one may take.
    pollfd ended{.fd = greedy.get(), .events = 0, .revents = 0};
    poll(&ended, 1, /*milliseconds=*/1200);
    std::vector<FileDescriptor> silent;
    for (size_t i = 0; i + 2 < kMaxWebConnections; ++i) {
      silent.push_back(Connect());
    }
    EXPECT_EQ(ReadAll(Begin(kRequest)), "/metrics");
    as_said = IsOpen(oldest) && ReadAll(greedy).size() < kBigBytes;
  }
  EXPECT_TRUE(as_said);
}

// It is told of connections again, of all later ones.
TEST_F(WebServerTest, AMomentWithoutDescriptorsCostsOneConnection) {
  const int64_t before = OpenDescriptors();
  const FileDescriptor silent = Connect();
  ASSERT_TRUE(Eventually([&] { return OpenDescriptors() == before + 2; }))
      << "the server has accepted it";
  const FileDescriptor client = NewClient();
  {
    const NoFreeDescriptor full;
    ConnectTo(client);
    Send(kRequest, client);
    EXPECT_EQ(ReadAll(silent), "");
  }
  EXPECT_EQ(ReadAll(client), "/metrics");
  EXPECT_EQ(ReadAll(Begin(kRequest)), "/metrics");
  EXPECT_EQ(ReadAll(Begin(kRequest)), "/metrics");
}

TEST_F(WebServerTest, BytesThatTrickleDoNotRenewTheTime) {
  const FileDescriptor client = Connect();
  pollfd closed{.fd = client.get(), .events = POLLIN, .revents = 0};
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(kDeadlineSeconds);
  while (poll(&closed, 1, /*milliseconds=*/50) == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    send(client.get(), "G", 1, MSG_NOSIGNAL);
  }
  EXPECT_FALSE(IsOpen(client));
}

TEST_F(WebServerTest, ManyWhoReadAreAllAnswered) {
  // Their pages are more than the server keeps at a time. A machine that stalls
  // makes readers slow.
  bool all_are = false;
  for (int attempt = 0; attempt < 5 && !all_are; ++attempt) {
    std::vector<FileDescriptor> readers;
    for (int i = 0; i < 160; ++i) {
      readers.push_back(Begin("GET /page HTTP/1.1\r\n\r\n"));
    }
    all_are = std::all_of(readers.begin(), readers.end(), [](const auto& each) {
      return ReadAll(each).size() == kPageBytes;
    });
  }
  EXPECT_TRUE(all_are);
}

TEST_F(WebServerTest, AnswersThatAreNotReadAreBounded) {
  std::vector<FileDescriptor> greedy;
  for (int i = 0; i < 8; ++i) {
    greedy.push_back(Begin("GET /big HTTP/1.1\r\n\r\n"));
    // Its answer has begun.
    char byte = 0;
    EXPECT_EQ(recv(greedy.back().get(), &byte, 1, MSG_PEEK), 1);
  }
  EXPECT_EQ(ReadAll(Begin("GET /big HTTP/1.1\r\n\r\n")).size(), kBigBytes);
  EXPECT_LT(ReadAll(greedy.front()).size(), kBigBytes);
}

}  // namespace
}  // namespace counterweight::server
