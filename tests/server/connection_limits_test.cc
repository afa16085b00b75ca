// Keepalive, grace and metadata of one connection, with short limits.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

// HTTP/2's types of frames.
constexpr uint8_t kSettings = 4;
constexpr uint8_t kPing = 6;
constexpr uint8_t kAck = 1;

// A client that sends nothing but what a test sends.
class Http2 {
 public:
  // `address` is "127.0.0.1:port".
  explicit Http2(const std::string& address)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(
        std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Only a server that sends nothing more reaches it.
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) !=
        0) {
      throw std::runtime_error("cannot connect to " + address);
    }
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Send(kSettings, 0, "");
  }

  // `payload` has less than 256 bytes.
  void Send(uint8_t kind, uint8_t flags, const std::string& payload) {
    std::string frame(9, '\0');
    frame[2] = static_cast<char>(payload.size());
    frame[3] = static_cast<char>(kind);
    frame[4] = static_cast<char>(flags);
    Write(frame + payload);
  }

  // Returns the payload of the next frame of this kind; none at the
  // connection's end, and after a silent minute.
  std::optional<std::string> Next(uint8_t kind, uint8_t flags = 0) {
    for (;;) {
      const std::string head = Read(9);
      if (head.empty()) return std::nullopt;
      const auto byte = [&](size_t i) { return static_cast<uint8_t>(head[i]); };
      std::string payload =
          Read(size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | size_t{byte(2)});
      if (byte(3) == kind && byte(4) == flags) return payload;
    }
  }

  // Answers the next ping. False at the connection's end.
  bool AnswerPing() {
    const std::optional<std::string> ping = Next(kPing);
    if (ping.has_value()) Send(kPing, kAck, *ping);
    return ping.has_value();
  }

 private:
  void Write(const std::string& bytes) {
    send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // Returns the next `size` bytes; less, or none, at the connection's end.
  std::string Read(size_t size) {
    std::string bytes(size, '\0');
    const ssize_t n = recv(socket_.get(), bytes.data(), size, MSG_WAITALL);
    bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return bytes;
  }

  FileDescriptor socket_;
};

Config ScrapedConfig() {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  return config;
}

bool HasConnections(int count, RunningServer* running) {
  return running->Scrape().find("\ncounterweight_connections " +
                                std::to_string(count) + "\n") !=
         std::string::npos;
}

TEST(ConnectionLimits, AClientThatFreezesIsDisconnected) {
  Config config = ScrapedConfig();
  config.keepalive_interval_s = 1;
  // A busy machine may take a second to answer, and no five.
  config.keepalive_timeout_s = 5;
  RunningServer running(config);
  Http2 client(running.server().addresses().front());
  // More than gRPC sends by default without data: the limit is off.
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(client.AnswerPing());
  ASSERT_TRUE(client.Next(kPing).has_value());
  // From here the client is frozen: it answers nothing.
  while (client.Next(kPing).has_value()) {
  }
  // The client reads the end before the server has counted it.
  EXPECT_TRUE(Eventually([&] { return HasConnections(0, &running); }));
}

TEST(ConnectionLimits, AClientThatLivesIsNot) {
  Config config = ScrapedConfig();
  config.keepalive_interval_s = 1;
  config.keepalive_timeout_s = 5;
  RunningServer running(config);
  const auto stub = v1::CorrectionService::NewStub(running.channel());
  grpc::ClientContext context;
  const auto stream = stub->CorrectStream(&context);
  ASSERT_TRUE(Eventually([&] { return HasConnections(1, &running); }));
  Http2 pinged(running.server().addresses().front());
  // Its pings are the clock: the server has the same for both. They take longer
  // than a client that does not answer would stay.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(pinged.AnswerPing());
  EXPECT_TRUE(HasConnections(2, &running));
  // The stream is open: the server refuses it because it has no header.
  stream->WritesDone();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(ConnectionLimits, PingsOfClientsAreTolerated) {
  Config config = TestConfig();
  config.keepalive_interval_s = 2;
  RunningServer running(config);
  Http2 client(running.server().addresses().front());
  // The server's pings are the clock: two seconds apart. By default gRPC allows
  // three pings of a client without data, each later one only after five
  // minutes.
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client.AnswerPing());
    const std::string mine = "1234567" + std::to_string(i);
    client.Send(kPing, 0, mine);
    ASSERT_EQ(client.Next(kPing, kAck), mine);
  }
}

TEST(ConnectionLimits, CallsHaveTheGraceOfTheirConnection) {
  Config config = TestConfig();
  config.max_connection_age_s = 1;
  config.max_connection_age_grace_s = 1;
  RunningServer running(config);
  const auto stub = v1::CorrectionService::NewStub(running.channel());
  grpc::ClientContext context;
  const auto stream = stub->CorrectStream(&context);
  // Only the connection's end ends the call.
  v1::CorrectStreamResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ConnectionLimits, MetadataHasSoManyBytes) {
  for (const int64_t allowed : {4096, 65536}) {
    Config config = TestConfig();
    config.max_metadata_bytes = allowed;
    RunningServer running(config);
    const auto correct = [&](int64_t size) {
      grpc::ClientContext context;
      context.AddMetadata("filler",
                          std::string(static_cast<size_t>(size), 'x'));
      v1::CorrectResponse response;
      return running.Correct(SmallRequest(), &response, &context).error_code();
    };
    EXPECT_EQ(correct(allowed / 2), grpc::StatusCode::OK);
    EXPECT_EQ(correct(allowed), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

}  // namespace
}  // namespace counterweight::server
