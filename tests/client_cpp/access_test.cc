// TLS and tokens, with the real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "client/cpp/client.h"
#include "server/access/token_table.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

using testing::HasSubstr;

constexpr char kToken[] = "a-token-of-the-tests-0123";

class AccessTest : public testing::Test {
 protected:
  AccessTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("access_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    for (const char* name : {"server", "client"}) {
      const std::string command =
          "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
          "-nodes -days 2 -subj /CN=" +
          std::string(name) +
          " -addext subjectAltName=DNS:server.example,IP:127.0.0.1 -keyout " +
          File(name, ".key") + " -out " + File(name, ".crt") + " 2>/dev/null";
      EXPECT_EQ(std::system(command.c_str()), 0);
    }
  }
  ~AccessTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, const std::string& end) const {
    return (folder_ / (name + end)).string();
  }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name, "")) << text;
    return File(name, "");
  }

  // The server's tokens.
  std::string Tokens(const std::string& token) const {
    return Write("tokens", server::TokenLine("a", token).value() + "\n");
  }

  server::Config Tls() const {
    server::Config config = server::TestConfig();
    config.tls_certificate = File("server", ".crt");
    config.tls_key = File("server", ".key");
    return config;
  }

  static Status Ask(server::RunningServer* running, const Options& options) {
    return AskAt(running->server().addresses().front(), options);
  }

  static Status AskAt(const std::string& target, const Options& options) {
    v1::GetServerInfoResponse info;
    return Client(target, options).GetServerInfo(&info);
  }

  // Trusts the server, and shows the client's certificate if it is to.
  Options Trusting(bool shows_certificate = false) const {
    Options options;
    options.max_attempts = 1;
    options.tls = TlsFiles{.root_certificates = File("server", ".crt")};
    if (shows_certificate) {
      options.tls->certificate = File("client", ".crt");
      options.tls->key = File("client", ".key");
    }
    return options;
  }

 private:
  const std::filesystem::path folder_;
};

TEST_F(AccessTest, TlsIsCheckedByAuthorityAndName) {
  server::RunningServer running(Tls());
  Options options = Trusting();
  EXPECT_TRUE(Ask(&running, options).ok());
  options.tls->server_name = "server.example";
  EXPECT_TRUE(Ask(&running, options).ok());
  options.tls->server_name = "other.example";
  EXPECT_EQ(Ask(&running, options).code, StatusCode::kUnavailable);
  options = Trusting();
  options.tls->root_certificates = File("client", ".crt");
  EXPECT_EQ(Ask(&running, options).code, StatusCode::kUnavailable);
  options.tls.reset();
  EXPECT_EQ(Ask(&running, options).code, StatusCode::kUnavailable);
}

TEST_F(AccessTest, ClientsShowTheirCertificate) {
  server::Config config = Tls();
  config.tls_client_ca = File("client", ".crt");
  server::RunningServer running(config);
  EXPECT_TRUE(Ask(&running, Trusting(/*shows_certificate=*/true)).ok());
  EXPECT_EQ(Ask(&running, Trusting()).code, StatusCode::kUnavailable);
}

TEST_F(AccessTest, TokensAreSentAndReadAgain) {
  server::Config config = server::TestConfig();
  config.tokens = Tokens(kToken);
  server::RunningServer running(config);
  Options options;
  EXPECT_EQ(Ask(&running, options).code, StatusCode::kUnauthenticated);
  options.token = kToken;
  EXPECT_TRUE(Ask(&running, options).ok());

  options.token.clear();
  options.token_file = Write("token", "not-one-of-the-server\n");
  v1::GetServerInfoResponse info;
  Client client(running.server().addresses().front(), options);
  EXPECT_EQ(client.GetServerInfo(&info).code, StatusCode::kUnauthenticated);
  Write("token", std::string(kToken) + "\n");
  EXPECT_TRUE(client.GetServerInfo(&info).ok());
  Write("token", "");
  EXPECT_THAT(client.GetServerInfo(&info).message, HasSubstr("token_file"));
}

TEST_F(AccessTest, AMalformedTargetIsNotAnOutage) {
  for (const std::string target :
       {"http://localhost:1", "localhost", "localhost:0", "a b:1", "unix:"}) {
    const Status status = AskAt(target, {});
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument) << target;
    ASSERT_EQ(status.violations.size(), 1U);
    EXPECT_EQ(status.violations[0].field, "target");
    EXPECT_THAT(status.violations[0].description, HasSubstr(target));
    EXPECT_THAT(status.violations[0].description, HasSubstr("HOST:PORT"));
  }
}

TEST_F(AccessTest, TheLongestTimeoutIsNone) {
  server::RunningServer running(server::TestConfig());
  Options options;
  options.timeout = std::chrono::milliseconds::max();
  EXPECT_TRUE(Ask(&running, options).ok());
}

TEST_F(AccessTest, ATokenIsNotSentWhereOthersCouldReadIt) {
  Options options;
  options.token = kToken;
  options.timeout = std::chrono::milliseconds(50);
  for (const char* target :
       {"10.0.0.1:1", "dns:///a.example:1", "0.0.0.0:1",
        "ipv4:127.0.0.1:1,10.0.0.1:1", "ipv6:[::1]:1,[2001:db8::1]:1"}) {
    const Status status = AskAt(target, options);
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument) << target;
    EXPECT_THAT(status.message, HasSubstr("could be read on its way"));
  }
  for (const char* target :
       {"127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/none",
        "ipv4:127.1.1.1:1", "ipv6:[::1]:1,[::1]:2"}) {
    EXPECT_NE(AskAt(target, options).code, StatusCode::kInvalidArgument)
        << target;
  }
  options.allow_insecure_token = true;
  EXPECT_NE(AskAt("10.0.0.1:1", options).code, StatusCode::kInvalidArgument);
}

TEST_F(AccessTest, OptionsThatAreWrongAreNamed) {
  Options options = Trusting();
  options.tls->root_certificates = File("none", "");
  EXPECT_THAT(AskAt("localhost:1", options).message,
              HasSubstr("options.tls.root_certificates"));
  options = Trusting(/*shows_certificate=*/true);
  options.tls->key.clear();
  EXPECT_THAT(AskAt("localhost:1", options).message, HasSubstr("options.tls"));
  options = Options();
  options.token = "two words";
  EXPECT_THAT(AskAt("localhost:1", options).message,
              HasSubstr("options.token"));
  options.token.clear();
  options.token_file = File("none", "");
  EXPECT_THAT(AskAt("localhost:1", options).message,
              HasSubstr("options.token_file"));
}

// Opening one waits for who writes to it.
TEST_F(AccessTest, APipeIsNoFileOfCredentials) {
  const std::string pipe = File("pipe", "");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Options options;
  options.token_file = pipe;
  EXPECT_THAT(AskAt("localhost:1", options).message,
              HasSubstr("options.token_file: the file " + pipe));
  options = Options();
  options.tls.emplace();
  options.tls->root_certificates = pipe;
  EXPECT_THAT(AskAt("localhost:1", options).message,
              HasSubstr("options.tls.root_certificates: the file " + pipe));
}

}  // namespace
}  // namespace counterweight::client
