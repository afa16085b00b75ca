// The program: exit codes, output, signals.
#include <signal.h>

#include <sstream>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/blocking_call.h"
#include "tests/server/child_process.h"

namespace counterweight::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kListening = "counterweight-server listening on ";

// Returns the rest of a line that begins with `prefix`.
std::string After(const std::string& prefix, const std::string& line) {
  EXPECT_EQ(line.substr(0, prefix.size()), prefix);
  return line.size() < prefix.size() ? "" : line.substr(prefix.size());
}

grpc::Status GetServerInfo(const std::string& address) {
  auto stub = v1::CorrectionService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::GetServerInfoResponse response;
  return stub->GetServerInfo(&context, {}, &response);
}

// Sends a Correct with a request_id of one byte that is not UTF-8, without the
// stub, because protobuf would complain in this process too.
grpc::Status SendInvalidUtf8(const std::string& address) {
  const auto channel =
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const grpc::Slice bytes(std::string("\x0a\x01\xff"));
  grpc::ByteBuffer response;
  return BlockingCall(channel, "/counterweight.v1.CorrectionService/Correct",
                      &context, grpc::ByteBuffer(&bytes, 1), &response);
}

// Returns the stderr lines of a server with this --log_level that received
// invalid UTF-8.
std::vector<std::string> LogOfInvalidUtf8(const std::string& level) {
  ChildProcess server({"--listen=127.0.0.1:0", "--metrics_listen=",
                       "--drain_delay=0", "--log_level=" + level});
  EXPECT_EQ(SendInvalidUtf8(After(kListening, server.ReadLine())).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  std::istringstream log(server.StandardError());
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) lines.push_back(line);
  return lines;
}

// Returns the "event" of each line; fails the test if one is not a JSON object.
std::vector<std::string> EventsOf(const std::vector<std::string>& lines) {
  std::vector<std::string> events;
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object()) << line;
    events.push_back(json.is_object() ? json.value("event", "") : line);
  }
  return events;
}

TEST(Binary, PrintsWhereItListensAndStopsOnSigterm) {
  ChildProcess server({"--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                       "--drain_delay=0"});
  const std::string address = After(kListening, server.ReadLine());
  EXPECT_EQ(address.find(":0"), std::string::npos) << address;
  After("metrics on http://127.0.0.1:", server.ReadLine());
  EXPECT_TRUE(GetServerInfo(address).ok());
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  const std::string log = server.StandardError();
  EXPECT_NE(log.find(R"("event":"started")"), std::string::npos) << log;
  EXPECT_NE(log.find(R"("max_tokens":")"), std::string::npos) << log;
  EXPECT_NE(log.find(R"("event":"stopped")"), std::string::npos) << log;
}

TEST(Binary, TheLogIsJsonWhateverClientsSend) {
  EXPECT_THAT(EventsOf(LogOfInvalidUtf8("info")),
              ElementsAre("started", "request", "draining", "stopped"));
  // protobuf complains; gRPC may log lines of its own.
  EXPECT_THAT(EventsOf(LogOfInvalidUtf8("debug")), Contains("protobuf"));
}

TEST(Binary, ALogThatIsOffIsEmpty) {
  EXPECT_THAT(LogOfInvalidUtf8("off"), IsEmpty());
}

TEST(Binary, KeepsServingDuringTheDrainDelay) {
  ChildProcess server(
      {"--listen=127.0.0.1:0", "--metrics_listen=", "--drain_delay=1000"});
  const std::string address = After(kListening, server.ReadLine());
  server.Signal(SIGINT);
  EXPECT_TRUE(GetServerInfo(address).ok());
  // A second signal stops the server at once.
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST(Binary, AWrongCommandLineIsExitCodeTwo) {
  ChildProcess unknown({"--bogus"});
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_NE(unknown.StandardError().find("--bogus"), std::string::npos);
  ChildProcess open({"--listen=0.0.0.0:0"});
  EXPECT_EQ(open.Wait(), 2);
  EXPECT_NE(open.StandardError().find("--allow_insecure"), std::string::npos);
}

TEST(Binary, ATakenPortIsExitCodeOne) {
  ChildProcess first({"--listen=127.0.0.1:0", "--metrics_listen="});
  const std::string address = After(kListening, first.ReadLine());
  ChildProcess second({"--listen=" + address, "--metrics_listen="});
  EXPECT_EQ(second.Wait(), 1);
  // The log's lines, then the sentence.
  const std::string text = second.StandardError();
  const size_t sentence = text.find("counterweight-server: ");
  ASSERT_NE(sentence, std::string::npos) << text;
  EXPECT_NE(text.find(address, sentence), std::string::npos) << text;
  EXPECT_EQ(text.find('\n', sentence), text.size() - 1) << text;
  EXPECT_TRUE(sentence == 0 || text[sentence - 1] == '\n') << text;
}

TEST(Binary, HelpAndVersionGoToStdout) {
  ChildProcess help({"--help"});
  EXPECT_NE(help.ReadLine().find("counterweight-server"), std::string::npos);
  ChildProcess version({"--version"});
  EXPECT_EQ(version.ReadLine().find("counterweight-server 0."), 0U);
  EXPECT_EQ(version.Wait(), 0);
}

}  // namespace
}  // namespace counterweight::server
