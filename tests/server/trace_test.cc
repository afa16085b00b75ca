// Trace context and the environment of OpenTelemetry.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/config/otlp_options.h"
#include "server/log/traceparent.h"
#include "server/trace/span_exporter.h"
#include "server/trace/spans.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// The example of W3C Trace Context, section 3.2.3.
constexpr char kExample[] =
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

std::string Replaced(size_t at, std::string_view with) {
  return std::string(kExample).replace(at, with.size(), with);
}

TEST(Traceparent, IsReadAsTheSpecificationSays) {
  const auto parsed = ParseTraceparent(kExample);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(ToHex(parsed->trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_THAT(parsed->parent_id,
              ElementsAre(0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7));
  EXPECT_TRUE(parsed->is_sampled);
  // The last bit of the flags means "sampled"; level 2 defines the one before.
  for (const char* const flags : {"00", "02", "fe", "80"}) {
    EXPECT_FALSE(ParseTraceparent(Replaced(53, flags))->is_sampled) << flags;
  }
  for (const char* const flags : {"01", "03", "ff", "81"}) {
    EXPECT_TRUE(ParseTraceparent(Replaced(53, flags))->is_sampled) << flags;
  }
  EXPECT_TRUE(ParseTraceparent(Replaced(0, "cc")));
  EXPECT_TRUE(ParseTraceparent(Replaced(0, "cc") + "-later-fields"));
}

TEST(Traceparent, InvalidOnesAreNone) {
  for (const std::string& text :
       {std::string(), std::string("00"), std::string(kExample) + "0",
        std::string(kExample) + "-0", Replaced(0, "ff"),
        Replaced(0, "cc") + "0", Replaced(3, "4BF9"), Replaced(3, "4bg9"),
        Replaced(2, "_"), Replaced(35, "_"), Replaced(52, "_"),
        Replaced(53, "0x"), Replaced(3, std::string(32, '0')),
        Replaced(36, std::string(16, '0')), std::string(kExample).substr(1)}) {
    EXPECT_FALSE(ParseTraceparent(text)) << text;
  }
}

TEST(Traceparent, IdsAreRandom) {
  std::set<TraceId> ids;
  std::set<SpanId> spans;
  for (int i = 0; i < 1000; ++i) {
    ids.insert(MakeTraceId());
    spans.insert(MakeSpanId());
  }
  EXPECT_EQ(ids.size(), 1000U);
  EXPECT_EQ(spans.size(), 1000U);
}

OtlpOptions Read(const std::vector<std::string>& environment,
                 std::string* error) {
  OtlpOptions options;
  *error = ReadOtlpOptions(environment, &options);
  return options;
}

TEST(OtlpOptions, WithoutAnEndpointNothingIsRead) {
  std::string error;
  const OtlpOptions options =
      Read({"OTEL_EXPORTER_OTLP_HEADERS=broken", "OTEL_SDK_DISABLED=true",
            "OTEL_EXPORTER_OTLP_ENDPOINT="},
           &error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(options.target, "");
  EXPECT_EQ(options.why_off, "");
}

TEST(OtlpOptions, EndpointsAreUrlsWithAHost) {
  const auto read = [](const std::string& url) {
    std::string error;
    const OtlpOptions options =
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=" + url}, &error);
    return error.empty() ? options.target + (options.has_tls ? " tls" : "")
                         : error;
  };
  EXPECT_EQ(read("http://collector:4317"), "collector:4317");
  EXPECT_EQ(read("http://collector:4317/"), "collector:4317");
  EXPECT_EQ(read("http://collector"), "collector:4317");
  EXPECT_EQ(read("https://collector:443"), "collector:443 tls");
  EXPECT_EQ(read("http://[::1]:4317"), "[::1]:4317");
  EXPECT_EQ(read("http://[::1]"), "[::1]:4317");
  for (const char* const wrong :
       {"collector:4317", "ftp://collector", "http://", "http://:4317",
        "http://collector:0", "http://collector:99999", "http://collector:x",
        "http://collector/v1/traces", "http://user@collector"}) {
    EXPECT_THAT(read(wrong), HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT="))
        << wrong;
  }
}

TEST(OtlpOptions, TheEndpointOfTracesWins) {
  std::string error;
  const OtlpOptions options =
      Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://b"},
           &error);
  EXPECT_EQ(options.target, "b:4317");
}

TEST(OtlpOptions, HeadersAndResourcesArePercentEncodedPairs) {
  std::string error;
  const OtlpOptions options =
      Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
            "OTEL_EXPORTER_OTLP_HEADERS=Api-Key=a%20b, x=1=2",
            "OTEL_RESOURCE_ATTRIBUTES=service.name=x,k8s.pod.name=p%2c1",
            "OTEL_SERVICE_NAME=trainer"},
           &error);
  EXPECT_EQ(error, "");
  EXPECT_THAT(options.headers,
              ElementsAre(Pair("api-key", "a b"), Pair("x", "1=2")));
  EXPECT_THAT(options.resource, ElementsAre(Pair("k8s.pod.name", "p,1"),
                                            Pair("service.name", "trainer")));
  for (const char* const wrong :
       {"secret", "=secret", "a b=secret", "grpc-timeout=secret",
        "x-bin=secret", "x=secret%0a"}) {
    Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
          std::string("OTEL_EXPORTER_OTLP_HEADERS=") + wrong},
         &error);
    EXPECT_THAT(error, HasSubstr("OTEL_EXPORTER_OTLP_HEADERS")) << wrong;
  }
}

TEST(OtlpOptions, NoProxyStandsBeforeThisMachineOrReadsHeaders) {
  const std::string token = "OTEL_EXPORTER_OTLP_HEADERS=authorization=x";
  const auto may_use_proxy = [](const std::string& url,
                                const std::string& headers) {
    std::string error;
    const bool may = MayUseProxy(
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, headers}, &error));
    EXPECT_EQ(error, "") << url;
    return may;
  };
  for (const char* const here :
       {"localhost:4317", "LocalHost", "localhost.:4317", "otel.localhost",
        "127.0.0.1:4317", "127.1.2.3", "[::1]:4317", "[::1]", "0.0.0.0:4317",
        "[::]:4317", "[::ffff:127.0.0.1]:4317"}) {
    for (const char* const scheme : {"http://", "https://"}) {
      EXPECT_FALSE(may_use_proxy(scheme + std::string(here), "")) << here;
      EXPECT_FALSE(may_use_proxy(scheme + std::string(here), token)) << here;
    }
  }
  for (const char* const elsewhere :
       {"collector:4317", "10.0.0.1:4317", "[fd00::1]", "localhost.example",
        "127.0.0.1.example"}) {
    EXPECT_TRUE(may_use_proxy(std::string("http://") + elsewhere, ""));
    EXPECT_TRUE(may_use_proxy(std::string("https://") + elsewhere, token));
    EXPECT_FALSE(may_use_proxy(std::string("http://") + elsewhere, token));
  }
}

TEST(OtlpOptions, OtherVariablesTurnTracesOffWithAReason) {
  for (const char* const off :
       {"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_SDK_DISABLED=true",
        "OTEL_TRACES_EXPORTER=none"}) {
    std::string error;
    const OtlpOptions options =
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a", off}, &error);
    EXPECT_EQ(error, "");
    EXPECT_EQ(options.target, "");
    EXPECT_THAT(options.why_off, HasSubstr(off));
  }
}

TEST(OtlpOptions, TheProtocolOfTracesWins) {
  const std::string all = "OTEL_EXPORTER_OTLP_PROTOCOL=";
  const std::string traces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=";
  const auto why_off = [&](const std::string& of_all,
                           const std::string& of_traces) {
    std::string error;
    return Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a", all + of_all,
                 traces + of_traces},
                &error)
        .why_off;
  };
  EXPECT_EQ(why_off("http/protobuf", "grpc"), "");
  EXPECT_THAT(why_off("grpc", "http/json"), HasSubstr(traces + "http/json"));
  EXPECT_THAT(why_off("http/protobuf", ""), HasSubstr(all + "http/protobuf"));
}

RequestRecord Sampled() {
  const auto now = std::chrono::steady_clock::now();
  RequestRecord record{.rpc = "Correct", .run = std::string(1000, 'r')};
  record.trace = Trace{.trace_id = MakeTraceId(),
                       .parent_id = std::nullopt,
                       .is_sampled = true,
                       .start = std::chrono::system_clock::now(),
                       .steady_start = now,
                       .stages = {{"decode", now, now}}};
  return record;
}

TEST(Spans, TextsAreCut) {
  otlp::ScopeSpans spans;
  AddSpans(Sampled(), std::chrono::steady_clock::now(), &spans);
  ASSERT_EQ(spans.spans_size(), 2);
  EXPECT_EQ(spans.spans(1).parent_span_id(), spans.spans(0).span_id());
  EXPECT_LT(spans.ByteSizeLong(), 1000U);
}

TEST(SpanExporter, BoundsTheSpansThatWait) {
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  std::string error;
  int64_t dropped = 0;
  {
    // Connections to this address are neither accepted nor refused at once.
    const auto exporter =
        SpanExporter::Start({.target = "192.0.2.1:4317"}, &log, &error);
    ASSERT_NE(exporter, nullptr) << error;
    const RequestRecord record = Sampled();
    for (size_t i = 0; i < 2 * SpanExporter::kMaxWaiting; ++i) {
      exporter->Add(record);
    }
    dropped = exporter->dropped();
    EXPECT_EQ(exporter->exported(), 0);
  }
  EXPECT_GE(dropped, static_cast<int64_t>(2 * (SpanExporter::kMaxWaiting -
                                               SpanExporter::kMaxBatch)));
}

// Answers every call at once with `status`, and keeps the time that its
// deadline leaves and the shortest pause between two calls.
class Collector final : public grpc::CallbackGenericService {
 public:
  explicit Collector(grpc::Status status) : status_(std::move(status)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override { server_->Shutdown(); }

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  // The time that the last call had left, in seconds.
  double seconds_left() const { return seconds_left_; }
  // In seconds; infinite before the second call.
  double shortest_pause() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return shortest_pause_;
  }

 private:
  struct Call : grpc::ServerGenericBidiReactor {
    explicit Call(const grpc::Status& status) {
      // An empty message.
      const grpc::Slice none;
      answer = grpc::ByteBuffer(&none, 1);
      if (status.ok()) {
        StartWriteAndFinish(&answer, {}, status);
      } else {
        Finish(status);
      }
    }
    void OnDone() override { delete this; }
    grpc::ByteBuffer answer;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    NoteCall(std::chrono::steady_clock::now());
    const gpr_timespec left = gpr_time_sub(
        gpr_convert_clock_type(context->raw_deadline(), GPR_CLOCK_MONOTONIC),
        gpr_now(GPR_CLOCK_MONOTONIC));
    seconds_left_ = gpr_timespec_to_micros(left) / 1e6;
    return new Call(status_);
  }

  void NoteCall(std::chrono::steady_clock::time_point now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (last_) {
      const std::chrono::duration<double> pause = now - *last_;
      shortest_pause_ = std::min(shortest_pause_, pause.count());
    }
    last_ = now;
  }

  const grpc::Status status_;
  int port_ = 0;
  std::atomic<double> seconds_left_ = 0;
  mutable std::mutex mutex_;  // guards the next two
  std::optional<std::chrono::steady_clock::time_point> last_;
  double shortest_pause_ = std::numeric_limits<double>::infinity();
  std::unique_ptr<grpc::Server> server_;
};

TEST(SpanExporter, TheLastExportHasAShorterDeadline) {
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  Collector collector({grpc::StatusCode::UNAVAILABLE, "away"});
  const auto last_deadline = [&] {
    std::string error;
    auto exporter =
        SpanExporter::Start({.target = collector.target()}, &log, &error);
    exporter->Add(Sampled());
    exporter.reset();
    return collector.seconds_left();
  };
  // On a busy machine the export of a period may be the last that has a span.
  constexpr double kSeconds = SpanExporter::kLastDeadline.count() / 1e3;
  EXPECT_TRUE(Eventually([&] {
    const double seconds = last_deadline();
    return seconds > 0 && seconds <= 1.1 * kSeconds;
  }));
}

// Else what is sent in a second would have a bound.
TEST(SpanExporter, ExportsOfManySpansFollowWithoutAPause) {
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  Collector collector(grpc::Status::OK);
  std::string error;
  const auto exporter =
      SpanExporter::Start({.target = collector.target()}, &log, &error);
  ASSERT_NE(exporter, nullptr) << error;
  const RequestRecord record = Sampled();
  constexpr int64_t kRequests = SpanExporter::kMaxWaiting;
  for (int64_t i = 0; i < kRequests; ++i) exporter->Add(record);
  // A request has a span and one of its stage.
  EXPECT_TRUE(
      Eventually([&] { return exporter->exported() == 2 * kRequests; }));
  constexpr double kSeconds = SpanExporter::kPeriod.count() / 1e3;
  EXPECT_LT(collector.shortest_pause(), kSeconds);
}

TEST(SpanExporter, ItsEndDoesNotWaitForASilentCollector) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  std::string error;
  auto exporter = SpanExporter::Start(
      {.target = "127.0.0.1:" + std::to_string(ntohs(address.sin_port))}, &log,
      &error);
  ASSERT_NE(exporter, nullptr) << error;
  exporter->Add(Sampled());
  // An export has begun, and gets no answer.
  const int connection = accept(listener, nullptr, nullptr);
  ASSERT_GE(connection, 0);
  const auto start = std::chrono::steady_clock::now();
  exporter.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, SpanExporter::kDeadline);
  close(connection);
  close(listener);
}

}  // namespace
}  // namespace counterweight::server
