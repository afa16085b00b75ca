// A collector's view of the exporter, and the fate of refused spans.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/base/version.h"
#include "server/trace/span_exporter.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;

// Keeps what it is sent; answers as a test sets it.
class ObedientCollector final : public grpc::CallbackGenericService {
 public:
  ObedientCollector() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~ObedientCollector() override { server_->Shutdown(); }

  struct Export {
    std::string method;
    std::vector<std::pair<std::string, std::string>> headers;
    otlp::ExportRequest request;
  };

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<Export> exports() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return exports_;
  }
  // Both apply to later calls.
  void Refuse(bool refuses) { refuses_ = refuses; }
  void Reject(int64_t spans) { rejected_ = spans; }

 private:
  struct Call : grpc::ServerGenericBidiReactor {
    Call(ObedientCollector* the_collector, Export begun)
        : collector(the_collector), one(std::move(begun)) {
      StartRead(&message);
    }
    void OnReadDone(bool ok) override {
      grpc::Slice bytes;
      EXPECT_TRUE(ok && message.DumpToSingleSlice(&bytes).ok());
      EXPECT_TRUE(one.request.ParseFromArray(bytes.begin(),
                                             static_cast<int>(bytes.size())));
      {
        const std::lock_guard<std::mutex> lock(collector->mutex_);
        collector->exports_.push_back(one);
      }
      if (collector->refuses_) {
        Finish({grpc::StatusCode::UNAVAILABLE, "away"});
        return;
      }
      otlp::ExportResponse response;
      response.mutable_partial_success()->set_rejected_spans(
          collector->rejected_);
      const grpc::Slice written(response.SerializeAsString());
      answer = grpc::ByteBuffer(&written, 1);
      StartWriteAndFinish(&answer, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

    ObedientCollector* const collector;
    Export one;
    grpc::ByteBuffer message;
    grpc::ByteBuffer answer;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    Export one{.method = context->method(), .headers = {}, .request = {}};
    for (const auto& [key, value] : context->client_metadata()) {
      if (key.starts_with("x-")) {
        one.headers.emplace_back(std::string(key.data(), key.size()),
                                 std::string(value.data(), value.size()));
      }
    }
    return new Call(this, std::move(one));
  }

  int port_ = 0;
  std::atomic<bool> refuses_ = false;
  std::atomic<int64_t> rejected_ = 0;
  mutable std::mutex mutex_;  // guards exports_
  std::vector<Export> exports_;
  std::unique_ptr<grpc::Server> server_;
};

class SpanCollectorTest : public testing::Test {
 protected:
  std::unique_ptr<SpanExporter> Start() {
    std::string error;
    auto exporter = SpanExporter::Start(
        {.target = collector_.target(),
         .headers = {{"x-token", "secret"}, {"x-team", "a b"}},
         .resource = {{"service.name", "drift"}, {"team", "rl"}},
         .deadline = std::chrono::minutes(10)},
        &log_, &error);
    EXPECT_NE(exporter, nullptr) << error;
    return exporter;
  }
  // A request's span, without stages.
  static RequestRecord RecordOf(const std::string& request_id) {
    RequestRecord record{.rpc = "Correct", .request_id = request_id};
    record.trace = Trace{.trace_id = MakeTraceId(),
                         .parent_id = std::nullopt,
                         .is_sampled = true,
                         .start = std::chrono::system_clock::now(),
                         .steady_start = std::chrono::steady_clock::now(),
                         .stages = {}};
    return record;
  }
  int Lines(const std::string& event) const {
    const std::string text = lines_.str();
    int count = 0;
    for (size_t at = 0; (at = text.find("\"event\":\"" + event + "\"", at)) !=
                        std::string::npos;
         ++at) {
      ++count;
    }
    return count;
  }

  std::ostringstream lines_;
  RequestLog log_{std::make_shared<spdlog::logger>(
      "", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_))};
  ObedientCollector collector_;
};

TEST_F(SpanCollectorTest, EachExportNamesWhoSentIt) {
  Start()->Add(RecordOf("id"));
  // Its end sends what waits.
  const auto exports = collector_.exports();
  ASSERT_EQ(exports.size(), 1U);
  EXPECT_EQ(exports[0].method,
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
  EXPECT_THAT(exports[0].headers,
              testing::UnorderedElementsAre(testing::Pair("x-token", "secret"),
                                            testing::Pair("x-team", "a b")));
  ASSERT_EQ(exports[0].request.resource_spans_size(), 1);
  const otlp::ResourceSpans& sent = exports[0].request.resource_spans(0);
  std::vector<std::pair<std::string, std::string>> resource;
  for (const otlp::KeyValue& each : sent.resource().attributes()) {
    resource.emplace_back(each.key(), each.value().string_value());
  }
  EXPECT_THAT(resource, ElementsAre(testing::Pair("service.name", "drift"),
                                    testing::Pair("team", "rl")));
  ASSERT_EQ(sent.scope_spans_size(), 1);
  EXPECT_EQ(sent.scope_spans(0).scope().name(), "counterweight-server");
  EXPECT_EQ(sent.scope_spans(0).scope().version(), Version());
  EXPECT_EQ(sent.scope_spans(0).spans_size(), 1);
}

TEST_F(SpanCollectorTest, NothingIsSentWhereNothingWaits) {
  Start().reset();
  EXPECT_EQ(collector_.exports().size(), 0U);
  EXPECT_EQ(lines_.str(), "");
}

// A lost span is not sent again; each absence has its own two lines.
TEST_F(SpanCollectorTest, WhatACollectorRefusesIsLost) {
  auto exporter = Start();
  const auto expect = [&](bool refuses, int64_t exported, int64_t dropped) {
    collector_.Refuse(refuses);
    exporter->Add(RecordOf(std::to_string(exported) + std::to_string(dropped)));
    return Eventually([&] {
      return exporter->exported() == exported && exporter->dropped() == dropped;
    });
  };
  ASSERT_TRUE(expect(true, 0, 1));
  ASSERT_TRUE(expect(true, 0, 2));
  ASSERT_TRUE(expect(false, 1, 2));
  ASSERT_TRUE(expect(true, 1, 3));
  ASSERT_TRUE(expect(false, 2, 3));
  for (const auto& each : collector_.exports()) {
    EXPECT_EQ(each.request.resource_spans(0).scope_spans(0).spans_size(), 1);
  }
  EXPECT_EQ(collector_.exports().size(), 5U);
  exporter.reset();  // its thread writes a line after it has counted
  EXPECT_EQ(Lines("spans_taken_again"), 2);
  EXPECT_EQ(Lines("spans_lost"), 2);
}

// An answer decides about no more than its export.
TEST_F(SpanCollectorTest, RejectedSpansAreAtMostThoseThatWereSent) {
  auto exporter = Start();
  const auto expect = [&](int64_t rejected, int64_t exported, int64_t dropped) {
    collector_.Reject(rejected);
    exporter->Add(RecordOf("a"));
    return Eventually([&] {
      return exporter->exported() == exported && exporter->dropped() == dropped;
    });
  };
  ASSERT_TRUE(expect(100, 0, 1));
  ASSERT_TRUE(expect(-100, 1, 1));
  ASSERT_TRUE(expect(1, 1, 2));
  exporter.reset();
  EXPECT_EQ(lines_.str(), "") << "the collector is there";
}

TEST_F(SpanCollectorTest, AnExportHasABoundedNumberOfRequests) {
  const auto exporter = Start();
  const auto kAll = static_cast<int64_t>(2 * SpanExporter::kMaxBatch + 1);
  for (int64_t i = 0; i < kAll; ++i) {
    exporter->Add(RecordOf(std::to_string(i)));
  }
  ASSERT_TRUE(Eventually([&] { return exporter->exported() == kAll; }));
  int64_t next = 0;
  for (const auto& each : collector_.exports()) {
    const auto& spans = each.request.resource_spans(0).scope_spans(0).spans();
    EXPECT_LE(spans.size(), static_cast<int>(SpanExporter::kMaxBatch));
    for (const otlp::Span& span : spans) {
      bool is_next = false;
      for (const otlp::KeyValue& attribute : span.attributes()) {
        is_next |= attribute.key() == "counterweight.request_id" &&
                   attribute.value().string_value() == std::to_string(next);
      }
      EXPECT_TRUE(is_next) << next;
      ++next;
    }
  }
  EXPECT_EQ(next, kAll);
}

}  // namespace
}  // namespace counterweight::server
