// A server that freezes without closing its connections, with the real one.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "client/cpp/client.h"
#include "tests/client_cpp/process.h"
#include "tests/client_cpp/test_batch.h"

namespace counterweight::client {
namespace {

// The port that the server has taken.
std::string AddressOf(Process* server) {
  constexpr std::string_view kListening = "counterweight-server listening on ";
  const std::string line = server->ReadLine();
  return line.starts_with(kListening) ? line.substr(kListening.size()) : "";
}

TEST(Keepalive, NoticesAServerThatFreezes) {
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    Process server({COUNTERWEIGHT_SERVER_BINARY, "--listen=127.0.0.1:0",
                    "--metrics_listen=", "--backend=cpu"});
    const std::string address = AddressOf(&server);
    ASSERT_FALSE(address.empty());
    Options options;
    options.transport = transport;
    options.max_attempts = 1;
    options.timeout = std::chrono::hours(1);
    options.keepalive_interval = std::chrono::seconds(1);
    options.keepalive_timeout = std::chrono::seconds(1);
    Client client(address, options);
    const TestBatch batch(64, 512);
    Response response;
    Status status = client.Correct(batch.Weights(), &response);
    ASSERT_TRUE(status.ok()) << status.ToString();
    server.Freeze();
    status = client.Correct(batch.Weights(), &response);
    EXPECT_EQ(status.code, StatusCode::kUnavailable) << status.ToString();
  }
}

TEST(Keepalive, IntervalAndTimeoutHaveBounds) {
  Options options;
  options.keepalive_interval = std::chrono::milliseconds(999);
  options.keepalive_timeout = std::chrono::hours(25);
  const Status status = Validate(options);
  ASSERT_EQ(status.violations.size(), 2U);
  EXPECT_EQ(status.violations[0].field, "options.keepalive_interval");
  EXPECT_EQ(status.violations[1].field, "options.keepalive_timeout");
}

}  // namespace
}  // namespace counterweight::client
