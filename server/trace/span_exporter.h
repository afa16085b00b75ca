// Sends spans to an OpenTelemetry collector by OTLP over gRPC.
#ifndef COUNTERWEIGHT_SERVER_TRACE_SPAN_EXPORTER_H_
#define COUNTERWEIGHT_SERVER_TRACE_SPAN_EXPORTER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "opentelemetry/otlp.pb.h"
#include "server/config/otlp_options.h"
#include "server/log/request_log.h"

namespace counterweight::server {

// Callers never wait for the collector. What it does not take is lost and
// counted: spans of at most kMaxWaiting requests wait. Thread-safe.
class SpanExporter {
 public:
  static constexpr size_t kMaxWaiting = 2048;  // requests
  static constexpr size_t kMaxBatch = 256;     // requests of one export
  static constexpr std::chrono::milliseconds kPeriod{1000};
  // Deadline of the last export, in the destructor.
  static constexpr std::chrono::milliseconds kLastDeadline{500};

  // Returns null, and *error a sentence, if the file of authorities cannot be
  // read. Sends nothing yet. *log outlives this.
  // REQUIRES: options.target is not empty.
  static std::unique_ptr<SpanExporter> Start(const OtlpOptions& options,
                                             RequestLog* log,
                                             std::string* error);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Takes the span of a request that ended now, and those of its stages.
  // REQUIRES: record.trace is sampled.
  void Add(const RequestRecord& record);

  // Spans that the collector took, and those that are lost.
  int64_t exported() const { return exported_; }
  int64_t dropped() const { return dropped_; }

 private:
  SpanExporter(const OtlpOptions& options, std::shared_ptr<grpc::Channel>,
               RequestLog* log);
  void Run();
  // Sends up to kMaxBatch requests; false if none wait, the export failed or
  // the destructor has begun.
  bool Export();

  const OtlpOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  RequestLog* const log_;
  std::atomic<int64_t> exported_ = 0;
  std::atomic<int64_t> dropped_ = 0;
  bool has_failed_ = false;  // the thread's: the last export failed
  std::mutex mutex_;         // guards all below
  std::condition_variable stop_;
  bool is_stopping_ = false;
  std::deque<otlp::ScopeSpans> waiting_;      // one of each request
  grpc::ClientContext* in_flight_ = nullptr;  // cancelled by the destructor
  std::thread thread_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_TRACE_SPAN_EXPORTER_H_
