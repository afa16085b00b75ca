// The cost of many scrapes at once.
#include "server/observe/metrics_server.h"

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "openssl/evp.h"
#include "server/access/token_table.h"
#include "server/config/config.h"
#include "server/log/request_log.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/server/temporary_folder.h"
#include "tests/server/web_client.h"

namespace counterweight::server {
namespace {

// Counts its pages; the first one is made when the test releases it.
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

bool IsAnswered(const FileDescriptor& client) {
  return CodeOf(client) == "200";
}

class MetricsServerTest : public testing::Test {
 protected:
  // A token may have any visible character.
  static constexpr const char* kToken = "abc:def:0123456789";

  Config WithTokens() const {
    std::ofstream(folder_.File("tokens")) << *TokenLine("a", kToken) << "\n";
    Config config;
    config.tokens = folder_.File("tokens");
    return config;
  }

  const TemporaryFolder folder_;
  RequestLog log_{std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::null_sink_mt>())};
  const std::unique_ptr<Access> access_ = Access::Load(Config{}, &log_).value();
  const std::unique_ptr<Access> guard_ =
      Access::Load(WithTokens(), &log_).value();
  const std::shared_ptr<CountedPages> pages_ = std::make_shared<CountedPages>();
  const std::atomic<Health> health_ = Health::kReady;

  std::unique_ptr<WebServer> Serve(Access* access, uint16_t* port) {
    return ServeMetrics({.host = "127.0.0.1", .port = 0, .path = ""},
                        /*with_tls=*/false,
                        {.metrics = {pages_},
                         .page = nullptr,
                         .health = &health_,
                         .access = access,
                         .hosts = {"metrics.example"}},
                        port)
        .value();
  }

  uint16_t port_ = 0;
  const std::unique_ptr<WebServer> web_ = Serve(access_.get(), &port_);
};

std::string Basic(const std::string& text) {
  std::string encoded(text.size() * 2 + 4, '\0');
  encoded.resize(static_cast<size_t>(
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                      reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()))));
  return "Authorization: Basic " + encoded + "\r\n";
}

TEST_F(MetricsServerTest, APasswordBeginsAfterTheFirstColon) {
  pages_->GoOn();
  uint16_t port = 0;
  const auto web = Serve(guard_.get(), &port);
  const std::string token = kToken;
  EXPECT_EQ(CodeOf(Ask(port, Basic("user:" + token))), "200");
  EXPECT_EQ(CodeOf(Ask(port, Basic(":" + token))), "200");
  EXPECT_EQ(CodeOf(Ask(port, "Authorization: Bearer " + token + "\r\n")),
            "200");
  EXPECT_EQ(CodeOf(Ask(port, Basic("user:x" + token))), "401");
  EXPECT_EQ(CodeOf(Ask(port, Basic("user:" + token + "x"))), "401");
  EXPECT_EQ(CodeOf(Ask(port)), "401");
}

// A browser asks for a password only if the answer says so.
TEST_F(MetricsServerTest, SaysHowATokenMayBeSent) {
  pages_->GoOn();
  uint16_t port = 0;
  const auto web = Serve(guard_.get(), &port);
  const std::string refused = AnswerOf(Ask(port));
  for (const char* const way : {"Bearer\r\n", "Basic realm=\""}) {
    EXPECT_NE(refused.find(std::string("\r\nWWW-Authenticate: ") + way),
              std::string::npos)
        << refused;
  }
}

TEST_F(MetricsServerTest, OnlyProbesNeedNoToken) {
  pages_->GoOn();
  uint16_t port = 0;
  const auto web = Serve(guard_.get(), &port);
  EXPECT_EQ(CodeOf(Ask(port, "", "/livez")), "200");
  // The exemption of gRPC's health belongs to the other port.
  for (const char* const path :
       {"/grpc.health.v1.Health/Check", "/livez/../metrics", "/livez/", "/"}) {
    EXPECT_EQ(CodeOf(Ask(port, "", path)), "401") << path;
  }
}

TEST_F(MetricsServerTest, IsCompressedForThoseAloneWhoTakeIt) {
  pages_->GoOn();
  const auto is_compressed = [&](const std::string& field) {
    const std::string answer = AnswerOf(Ask(port_, field));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << field;
    return answer.find("\r\nContent-Encoding: gzip\r\n") != std::string::npos;
  };
  EXPECT_FALSE(is_compressed(""));
  EXPECT_TRUE(is_compressed("Accept-Encoding: gzip\r\n"));
  EXPECT_TRUE(is_compressed("accept-encoding: deflate, gzip;q=1.0\r\n"));
  // Also after a compressed page was made.
  EXPECT_FALSE(is_compressed("Accept-Encoding: gzip;q=0, identity\r\n"));
  EXPECT_FALSE(is_compressed("Accept-Encoding: deflate\r\n"));
}

TEST_F(MetricsServerTest, APageOfAnotherSiteReadsNothing) {
  pages_->GoOn();
  for (const char* const path : {"/metrics", "/none"}) {
    EXPECT_EQ(CodeOf(Ask(port_, "Host: evil.example:9464\r\n", path)), "421");
  }
  EXPECT_EQ(CodeOf(Ask(port_, "", "http://evil.example/metrics")), "421");
  EXPECT_EQ(CodeOf(Ask(port_, "Host: evil.example\r\n", "/readyz")), "200");
  for (const char* const host :
       {"127.0.0.1:9464", "localhost", "cw:9464", "Metrics.Example:9464", ""}) {
    const std::string field = std::string("Host: ") + host + "\r\n";
    EXPECT_EQ(CodeOf(Ask(port_, field)), "200") << host;
  }
}

TEST_F(MetricsServerTest, ScrapesAtOnceShareAPage) {
  const FileDescriptor first = Ask(port_);
  pages_->WaitForTheFirst();
  // They are too late for the first page, and together.
  std::vector<FileDescriptor> others;
  for (int i = 0; i < 60; ++i) others.push_back(Ask(port_));
  pages_->GoOn();
  EXPECT_TRUE(IsAnswered(first));
  for (const FileDescriptor& each : others) EXPECT_TRUE(IsAnswered(each));
  // They are accepted by sixteen, and each lot takes a turn or two.
  EXPECT_GE(pages_->made(), 2);
  EXPECT_LE(pages_->made(), 12);
}

// Those who take gzip and those who do not share no page.
TEST_F(MetricsServerTest, ScrapesAtOnceAreEachAnsweredAsTheyAsked) {
  const FileDescriptor first = Ask(port_);
  pages_->WaitForTheFirst();
  std::vector<FileDescriptor> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(Ask(port_, i % 2 == 0 ? "Accept-Encoding: gzip\r\n" : ""));
  }
  pages_->GoOn();
  EXPECT_TRUE(IsAnswered(first));
  for (size_t i = 0; i < others.size(); ++i) {
    const std::string answer = AnswerOf(others[i]);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << i;
    EXPECT_EQ(
        answer.find("\r\nContent-Encoding: gzip\r\n") != std::string::npos,
        i % 2 == 0)
        << i;
  }
  EXPECT_LT(pages_->made(), 17) << "some share a page";
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
