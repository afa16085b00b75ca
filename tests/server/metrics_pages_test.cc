// The answers of the metrics port: methods, fields, probes, the page.
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "server/access/token_table.h"
#include "server/engine/codec_publication.h"
#include "server/observe/drift_series.h"
#include "server/observe/metrics_server.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/server/temporary_folder.h"
#include "tests/server/web_client.h"

namespace counterweight::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string BodyOf(const std::string& answer) {
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

class MetricsPagesTest : public testing::Test {
 protected:
  MetricsPagesTest() {
    prometheus::BuildGauge()
        .Name("g")
        .Help("a gauge")
        .Register(*registry_)
        .Add({{"run", "a\"b"}})
        .Set(0.5);
  }

  void Publish(const std::string& run) {
    kernels::BatchSums sums{};
    sums.num_sequences = sums.nonempty_sequences = 1;
    sums.tokens = 2;
    sums.drift.histogram[5] = 2;
    const PublishedBatch batch = Published({}, {}, sums);
    drift_.Publish({.client = "a",
                    .run = run,
                    .policy_version = std::nullopt,
                    .request_id = "",
                    .batch = &batch});
  }

  std::unique_ptr<WebServer> Serve(Access* access, const Page* page,
                                   uint16_t* port) {
    return ServeMetrics({.host = "127.0.0.1", .port = 0, .path = ""},
                        /*with_tls=*/false,
                        {.metrics = {HideOldGaugesOf(&drift_), registry_},
                         .page = page,
                         .health = &health_,
                         .access = access,
                         .hosts = {}},
                        port)
        .value();
  }
  std::string Get(const std::string& path, const std::string& fields = "",
                  const std::string& method = "GET") const {
    return AnswerOf(Ask(port_, fields, path, method));
  }

  const TemporaryFolder folder_;
  RequestLog log_{std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::null_sink_mt>())};
  const std::unique_ptr<Access> access_ = Access::Load({}, &log_).value();
  const std::shared_ptr<prometheus::Registry> registry_ =
      std::make_shared<prometheus::Registry>();
  std::atomic<DriftSeries::Clock::duration> time_{std::chrono::hours(1)};
  DriftSeries drift_{{.max_runs = 9,
                      .max_runs_per_client = 9,
                      .last_batches = 2,
                      .gauge_window = std::chrono::seconds(10)},
                     registry_.get(),
                     [this] { return DriftSeries::Clock::time_point(time_); }};
  const Page page_{&drift_, "127.0.0.1:1"};
  std::atomic<Health> health_ = Health::kReady;
  uint16_t port_ = 0;
  const std::unique_ptr<WebServer> web_ = Serve(access_.get(), &page_, &port_);
};

// Text format 0.0.4.
TEST_F(MetricsPagesTest, PrometheusReadsItsOwnFormat) {
  const std::string answer = Get("/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; "
                                "charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("# HELP g a gauge\n# TYPE g gauge\n"
                                "g{run=\"a\\\"b\"} 0.5\n"));
}

TEST_F(MetricsPagesTest, AHeadIsTheAnswerWithoutItsBody) {
  for (const char* const path : {"/metrics", "/livez", "/page.json", "/none"}) {
    const std::string whole = Get(path);
    const std::string head = Get(path, "", "HEAD");
    EXPECT_EQ(head, whole.substr(0, whole.find("\r\n\r\n") + 4)) << path;
    EXPECT_THAT(head, HasSubstr("\r\nContent-Length: " +
                                std::to_string(BodyOf(whole).size()) + "\r\n"))
        << path;
    EXPECT_NE(BodyOf(whole), "") << path;
  }
}

TEST_F(MetricsPagesTest, OnlyGetAndHeadAreAnswered) {
  for (const char* const method : {"POST", "PUT", "DELETE", "OPTIONS", "get"}) {
    for (const char* const path : {"/metrics", "/livez"}) {
      const std::string answer = Get(path, "", method);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
      EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
      EXPECT_EQ(BodyOf(answer), "");
    }
  }
}

// Browsers keep nothing, guess no types and send no referrer.
TEST_F(MetricsPagesTest, EveryAnswerHasTheFieldsThatProtectIt) {
  for (const auto& [path, fields] :
       {std::pair("/metrics", ""), std::pair("/", ""), std::pair("/livez", ""),
        std::pair("/page.json", ""), std::pair("/none", ""),
        std::pair("/metrics", "Host: evil.example\r\n")}) {
    const std::string answer = Get(path, fields);
    for (const char* const field :
         {"Cache-Control: no-store", "X-Content-Type-Options: nosniff",
          "Referrer-Policy: no-referrer", "Connection: close"}) {
      EXPECT_THAT(answer, HasSubstr(std::string("\r\n") + field + "\r\n"))
          << path;
    }
  }
}

TEST_F(MetricsPagesTest, ACompressedPageIsTheSame) {
  const std::string packed =
      BodyOf(Get("/metrics", "Accept-Encoding: gzip\r\n"));
  EXPECT_THAT(packed, StartsWith("\x1f\x8b")) << "gzip's, not zlib's";
  google::protobuf::io::ArrayInputStream bytes(packed.data(),
                                               static_cast<int>(packed.size()));
  google::protobuf::io::GzipInputStream inflated(&bytes);
  std::string text;
  const void* data = nullptr;
  for (int size = 0; inflated.Next(&data, &size);) {
    text.append(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  EXPECT_EQ(inflated.ZlibErrorCode(), 1) << "the end of the stream";
  EXPECT_EQ(text, BodyOf(Get("/metrics")));
  EXPECT_LT(packed.size(), text.size());
  // Others are small.
  EXPECT_THAT(Get("/livez", "Accept-Encoding: gzip\r\n"),
              Not(HasSubstr("Content-Encoding")));
}

TEST_F(MetricsPagesTest, ProbesFollowTheHealthOfNow) {
  const auto expect = [&](Health health, const char* live, const char* ready,
                          const char* word) {
    health_ = health;
    for (const auto& [path, code] :
         {std::pair("/livez", live), std::pair("/readyz", ready)}) {
      const std::string answer = Get(path);
      EXPECT_THAT(answer, StartsWith(std::string("HTTP/1.1 ") + code + "\r\n"))
          << path << word;
      EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/plain\r\n"));
      EXPECT_THAT(answer, EndsWith(std::string("\r\n\r\n") + word + "\n"));
    }
  };
  constexpr const char* kWell = "200 OK";
  constexpr const char* kIll = "503 Service Unavailable";
  expect(Health::kStarting, kWell, kIll, "starting");
  expect(Health::kReady, kWell, kWell, "ready");
  expect(Health::kDraining, kWell, kIll, "draining");
  expect(Health::kFailed, kIll, kIll, "failed");
}

TEST_F(MetricsPagesTest, ThePageIsThereForBrowsers) {
  Publish("a b");
  EXPECT_THAT(Get("/"), HasSubstr("\r\nContent-Type: text/html; "));
  const std::string data = Get("/page.json?x=1&run=a%20b");
  EXPECT_THAT(data, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(data, HasSubstr(R"("run":{"name":"a b")"));
  EXPECT_THAT(Get("/page.json?run=a"), Not(HasSubstr(R"("run":{)")));
  // A name that no run can have.
  EXPECT_THAT(Get("/page.json?run=" + std::string(257, 'a')),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  for (const char* const none : {"/index.html", "/page.json/", "/metrics/"}) {
    EXPECT_THAT(Get(none), StartsWith("HTTP/1.1 404 Not Found\r\n")) << none;
  }
}

TEST_F(MetricsPagesTest, WithoutAPageItsPathsAreNone) {
  uint16_t port = 0;
  const auto web = Serve(access_.get(), nullptr, &port);
  for (const char* const path : {"/", "/page.json"}) {
    EXPECT_EQ(CodeOf(Ask(port, "", path)), "404") << path;
  }
  EXPECT_EQ(CodeOf(Ask(port)), "200");
}

// Each scrape hides first, so that it shows none of them.
TEST_F(MetricsPagesTest, AScrapeHidesGaugesOfARunThatLeft) {
  constexpr const char* kGauge = "counterweight_drift_kl_nats{run=\"left\"}";
  Publish("left");
  EXPECT_THAT(Get("/metrics"), HasSubstr(kGauge));
  time_ = time_.load() + std::chrono::seconds(10);
  EXPECT_THAT(Get("/metrics"), HasSubstr(kGauge));
  time_ = time_.load() + std::chrono::milliseconds(1);
  const std::string page = Get("/metrics");
  EXPECT_THAT(page, Not(HasSubstr(kGauge)));
  EXPECT_THAT(page,
              HasSubstr("counterweight_drift_batches_total{run=\"left\"} 1\n"));
  Publish("left");
  EXPECT_THAT(Get("/metrics"), HasSubstr(kGauge));
}

TEST_F(MetricsPagesTest, OnlyRefusedReadersAreCounted) {
  const std::string token = "a-token-for-prometheus";
  std::ofstream(folder_.File("tokens")) << *TokenLine("a", token) << "\n";
  Config config;
  config.tokens = folder_.File("tokens");
  const auto guard = Access::Load(config, &log_).value();
  uint16_t port = 0;
  const auto web = Serve(guard.get(), &page_, &port);
  EXPECT_EQ(CodeOf(Ask(port, "", "/livez")), "200");
  EXPECT_EQ(CodeOf(Ask(port, "Host: evil.example\r\n")), "421");
  EXPECT_EQ(CodeOf(Ask(port, "", "/metrics", "POST")), "405");
  EXPECT_EQ(CodeOf(Ask(port, "authorization: bearer " + token + "\r\n")),
            "200");
  EXPECT_EQ(guard->refused(), 0);
  for (int i = 1; i <= 2; ++i) {
    const std::string answer =
        AnswerOf(Ask(port, "Authorization: Bearer another\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
    EXPECT_THAT(answer, HasSubstr("none of this server's"));
    EXPECT_EQ(guard->refused(), i);
  }
}

}  // namespace
}  // namespace counterweight::server
