// Trace context, spans and their exporter.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/log/traceparent.h"
#include "server/trace/span_exporter.h"
#include "server/trace/spans.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

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

TEST(Traceparent, DigitsAreLowerCaseHexadecimal) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(ParseTraceparent(Replaced(10, {&c, 1})).has_value(),
              kDigits.find(c) != kDigits.npos)
        << byte;
  }
  const auto parsed =
      ParseTraceparent(Replaced(3, "0123456789abcdeffedcba9876543210"));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(ToHex(parsed->trace_id), "0123456789abcdeffedcba9876543210");
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

// Each thread draws by itself.
TEST(Traceparent, IdsOfThreadsDiffer) {
  constexpr size_t kThreads = 4;
  constexpr size_t kEach = 100;
  std::array<std::vector<TraceId>, kThreads> ids;
  std::array<std::vector<SpanId>, kThreads> spans;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (size_t n = 0; n < kEach; ++n) {
        ids[i].push_back(MakeTraceId());
        spans[i].push_back(MakeSpanId());
      }
    });
  }
  for (std::thread& each : threads) each.join();
  std::set<TraceId> different_ids;
  std::set<SpanId> different_spans;
  for (size_t i = 0; i < kThreads; ++i) {
    different_ids.insert(ids[i].begin(), ids[i].end());
    different_spans.insert(spans[i].begin(), spans[i].end());
  }
  EXPECT_EQ(different_ids.size(), kThreads * kEach);
  EXPECT_EQ(different_spans.size(), kThreads * kEach);
}

RequestRecord SampledRecord() {
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
  AddSpans(SampledRecord(), std::chrono::steady_clock::now(), &spans);
  ASSERT_EQ(spans.spans_size(), 2);
  EXPECT_EQ(spans.spans(1).parent_span_id(), spans.spans(0).span_id());
  EXPECT_LT(spans.ByteSizeLong(), 1000U);
}

// Names of OpenTelemetry's conventions for RPCs, and our own.
TEST(Spans, HaveWhatTheLogHas) {
  using std::chrono::nanoseconds;
  RequestRecord record = SampledRecord();
  Trace& trace = *record.trace;
  trace.parent_id = SpanId{1, 2, 3, 4, 5, 6, 7, 8};
  trace.start = std::chrono::system_clock::time_point(nanoseconds(5'000));
  const auto begin = trace.steady_start;
  trace.stages = {
      {"decode", begin + nanoseconds(10), begin + nanoseconds(30)},
      {"compute", begin + nanoseconds(30), begin + nanoseconds(70)}};
  record.run = "a-run";
  record.request_id = "an-id";
  record.replica = "two";
  record.method = "token_tis";
  record.peer = "unix";
  record.token = "trainer";
  record.code = grpc::StatusCode::INTERNAL;
  record.message = "broken";
  record.tokens = 11;
  record.sequences = 12;
  record.request_bytes = 13;
  record.response_bytes = 14;
  otlp::ScopeSpans spans;
  AddSpans(record, begin + nanoseconds(100), &spans);
  ASSERT_EQ(spans.spans_size(), 3);
  const otlp::Span& span = spans.spans(0);
  EXPECT_EQ(span.trace_id(),
            std::string(trace.trace_id.begin(), trace.trace_id.end()));
  EXPECT_EQ(span.parent_span_id(), "\1\2\3\4\5\6\7\10");
  EXPECT_EQ(span.span_id().size(), 8U);
  EXPECT_THAT(span.name(), EndsWith("/Correct"));
  EXPECT_EQ(span.kind(), 2);
  EXPECT_EQ(span.flags(), 1U);
  EXPECT_EQ(span.start_time_unix_nano(), 5'000U);
  EXPECT_EQ(span.end_time_unix_nano(), 5'100U);
  EXPECT_EQ(span.status().code(), 2);
  EXPECT_EQ(span.status().message(), "broken");
  std::map<std::string, std::string> attributes;
  for (const otlp::KeyValue& each : span.attributes()) {
    attributes[each.key()] = each.value().has_int_value()
                                 ? std::to_string(each.value().int_value())
                                 : each.value().string_value();
  }
  EXPECT_THAT(
      attributes,
      UnorderedElementsAre(
          Pair("rpc.system", "grpc"),
          Pair("rpc.service", "counterweight.v1.CorrectionService"),
          Pair("rpc.method", "Correct"), Pair("rpc.grpc.status_code", "13"),
          Pair("network.transport", "unix"),
          Pair("counterweight.request_id", "an-id"),
          Pair("counterweight.run", "a-run"),
          Pair("counterweight.replica", "two"),
          Pair("counterweight.method", "token_tis"),
          Pair("counterweight.client", "trainer"),
          Pair("counterweight.tokens", "11"),
          Pair("counterweight.sequences", "12"),
          Pair("counterweight.request_bytes", "13"),
          Pair("counterweight.response_bytes", "14")));
  for (int i = 1; i < 3; ++i) {
    const otlp::Span& stage = spans.spans(i);
    EXPECT_EQ(stage.trace_id(), span.trace_id());
    EXPECT_EQ(stage.parent_span_id(), span.span_id());
    EXPECT_EQ(stage.span_id().size(), 8U);
    EXPECT_NE(stage.span_id(), span.span_id());
    EXPECT_EQ(stage.kind(), 1);
    EXPECT_EQ(stage.flags(), 1U);
  }
  EXPECT_EQ(spans.spans(1).name(), "decode");
  EXPECT_EQ(spans.spans(1).start_time_unix_nano(), 5'010U);
  EXPECT_EQ(spans.spans(2).name(), "compute");
  EXPECT_EQ(spans.spans(2).end_time_unix_nano(), 5'070U);
}

TEST(Spans, OnlyFailuresOfTheServerAreErrors) {
  for (int code = 0; code <= 16; ++code) {
    RequestRecord record = SampledRecord();
    record.code = static_cast<grpc::StatusCode>(code);
    record.message = "why";
    otlp::ScopeSpans spans;
    AddSpans(record, std::chrono::steady_clock::now(), &spans);
    // By OpenTelemetry's conventions for gRPC servers.
    constexpr std::array kErrors = {2, 4, 12, 13, 14, 15};
    EXPECT_EQ(spans.spans(0).has_status(),
              std::find(kErrors.begin(), kErrors.end(), code) != kErrors.end())
        << code;
    EXPECT_FALSE(spans.spans(1).has_status());
    EXPECT_EQ(spans.spans(0).parent_span_id(), "");
  }
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
    const RequestRecord record = SampledRecord();
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

// Reads the runs of the requests, and answers after Release.
class ReadingCollector final : public grpc::CallbackGenericService {
 public:
  ReadingCollector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~ReadingCollector() override {
    Release();
    server_->Shutdown();
  }

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> runs() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return runs_;
  }
  void Release() {
    std::vector<Call*> held;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_released_ = true;
      held.swap(held_);
    }
    for (Call* const each : held) each->Answer();
  }

 private:
  struct Call : grpc::ServerGenericBidiReactor {
    explicit Call(ReadingCollector* the_collector) : collector(the_collector) {
      StartRead(&message);
    }
    void OnReadDone(bool ok) override {
      if (!ok || collector->Note(message, this)) Answer();
    }
    void OnDone() override { delete this; }
    void Answer() {
      // An empty message.
      const grpc::Slice none;
      answer = grpc::ByteBuffer(&none, 1);
      StartWriteAndFinish(&answer, {}, grpc::Status::OK);
    }

    ReadingCollector* const collector;
    grpc::ByteBuffer message;
    grpc::ByteBuffer answer;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Call(this);
  }

  // True if the call may be answered at once.
  bool Note(const grpc::ByteBuffer& message, Call* call) {
    grpc::Slice bytes;
    EXPECT_TRUE(message.DumpToSingleSlice(&bytes).ok());
    otlp::ExportRequest request;
    EXPECT_TRUE(
        request.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const otlp::Span& span :
         request.resource_spans(0).scope_spans(0).spans()) {
      for (const otlp::KeyValue& each : span.attributes()) {
        if (each.key() == "counterweight.run") {
          runs_.push_back(each.value().string_value());
        }
      }
    }
    if (!is_released_) held_.push_back(call);
    return is_released_;
  }

  int port_ = 0;
  mutable std::mutex mutex_;  // guards the next three
  std::vector<std::string> runs_;
  std::vector<Call*> held_;
  bool is_released_ = false;
  std::unique_ptr<grpc::Server> server_;
};

// For an export that a test holds, or that must arrive: a busy machine may take
// any time.
constexpr std::chrono::minutes kAmple{10};

// Those that wait behind a slow export are the newest, in their order.
TEST(SpanExporter, TheOldestOfTooManyAreLost) {
  constexpr size_t kTooMany = 8;
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  ReadingCollector collector;
  std::string error;
  const auto exporter = SpanExporter::Start(
      {.target = collector.target(), .deadline = kAmple}, &log, &error);
  ASSERT_NE(exporter, nullptr) << error;
  RequestRecord record = SampledRecord();
  record.run = "first";
  exporter->Add(record);
  ASSERT_TRUE(Eventually([&] { return collector.runs().size() == 1; }));
  std::vector<std::string> expected = {"first"};
  for (size_t i = 0; i < SpanExporter::kMaxWaiting + kTooMany; ++i) {
    record.run = std::to_string(i);
    exporter->Add(record);
    if (i >= kTooMany) expected.push_back(record.run);
  }
  // A request has a span and one of its stage.
  EXPECT_EQ(exporter->dropped(), int64_t{2 * kTooMany});
  collector.Release();
  EXPECT_TRUE(
      Eventually([&] { return collector.runs().size() == expected.size(); }));
  EXPECT_EQ(collector.runs(), expected);
}

// A collector that restarts costs the spans of one export in each period.
TEST(SpanExporter, AfterAFailureTheRestWaitsForTheNextPeriod) {
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  Collector collector({grpc::StatusCode::UNAVAILABLE, "away"});
  std::string error;
  const auto exporter = SpanExporter::Start(
      {.target = collector.target(), .deadline = kAmple}, &log, &error);
  ASSERT_NE(exporter, nullptr) << error;
  const RequestRecord record = SampledRecord();
  for (size_t i = 0; i < 2 * SpanExporter::kMaxBatch; ++i) {
    exporter->Add(record);
  }
  EXPECT_TRUE(
      Eventually([&] { return std::isfinite(collector.shortest_pause()); }));
  // The second begins so long after the answer to the first.
  constexpr double kSeconds = SpanExporter::kPeriod.count() / 1e3;
  EXPECT_GE(collector.shortest_pause(), kSeconds);
}

TEST(SpanExporter, TheLastExportHasAShorterDeadline) {
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  Collector collector({grpc::StatusCode::UNAVAILABLE, "away"});
  const auto last_deadline = [&] {
    std::string error;
    auto exporter =
        SpanExporter::Start({.target = collector.target()}, &log, &error);
    exporter->Add(SampledRecord());
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
  const auto exporter = SpanExporter::Start(
      {.target = collector.target(), .deadline = kAmple}, &log, &error);
  ASSERT_NE(exporter, nullptr) << error;
  const RequestRecord record = SampledRecord();
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
      {.target = "127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
       .deadline = kAmple},
      &log, &error);
  ASSERT_NE(exporter, nullptr) << error;
  exporter->Add(SampledRecord());
  // An export has begun, and gets no answer.
  const int connection = accept(listener, nullptr, nullptr);
  ASSERT_GE(connection, 0);
  const auto start = std::chrono::steady_clock::now();
  exporter.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kAmple);
  close(connection);
  close(listener);
}

}  // namespace
}  // namespace counterweight::server
