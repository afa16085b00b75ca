#include "server/trace/spans.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "server/engine/names.h"
#include "server/log/trace.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kService = "counterweight.v1.CorrectionService";
// Bounds strings of a refused request, which may have any length.
constexpr size_t kMaxTextBytes = 256;

constexpr int kKindInternal = 1;
constexpr int kKindServer = 2;
constexpr int kStatusError = 2;

template <typename Id>
std::string Bytes(const Id& id) {
  return {id.begin(), id.end()};
}

void Add(std::string_view key, std::string_view value, otlp::Span* span) {
  if (value.empty()) return;
  otlp::KeyValue* const added = span->add_attributes();
  added->set_key(std::string(key));
  added->mutable_value()->set_string_value(
      std::string(Shorten(value, kMaxTextBytes)));
}

void Add(std::string_view key, int64_t value, otlp::Span* span) {
  otlp::KeyValue* const added = span->add_attributes();
  added->set_key(std::string(key));
  added->mutable_value()->set_int_value(value);
}

// Codes that are the server's failures, by OpenTelemetry's conventions for
// servers of gRPC.
constexpr grpc::StatusCode kServerErrors[] = {
    grpc::StatusCode::UNKNOWN,       grpc::StatusCode::DEADLINE_EXCEEDED,
    grpc::StatusCode::UNIMPLEMENTED, grpc::StatusCode::INTERNAL,
    grpc::StatusCode::UNAVAILABLE,   grpc::StatusCode::DATA_LOSS};

bool IsServerError(grpc::StatusCode code) {
  return std::find(std::begin(kServerErrors), std::end(kServerErrors), code) !=
         std::end(kServerErrors);
}

}  // namespace

void AddSpans(const RequestRecord& record,
              std::chrono::steady_clock::time_point end,
              otlp::ScopeSpans* spans) {
  const Trace& trace = *record.trace;
  const std::string trace_id = Bytes(trace.trace_id);
  const auto time = [&](std::chrono::steady_clock::time_point at) {
    using std::chrono::nanoseconds;
    const nanoseconds since_epoch =
        std::chrono::duration_cast<nanoseconds>(
            trace.start.time_since_epoch()) +
        std::chrono::duration_cast<nanoseconds>(at - trace.steady_start);
    return static_cast<uint64_t>(since_epoch.count());
  };
  otlp::Span* const span = spans->add_spans();
  span->set_trace_id(trace_id);
  span->set_span_id(Bytes(MakeSpanId()));
  if (trace.parent_id) span->set_parent_span_id(Bytes(*trace.parent_id));
  span->set_name(Concat(kService, "/", record.rpc));
  span->set_kind(kKindServer);
  span->set_start_time_unix_nano(time(trace.steady_start));
  span->set_end_time_unix_nano(time(end));
  span->set_flags(1);
  Add("rpc.system", "grpc", span);
  Add("rpc.service", kService, span);
  Add("rpc.method", record.rpc, span);
  Add("rpc.grpc.status_code", record.code, span);
  Add("network.transport", record.peer, span);
  Add("counterweight.request_id", record.request_id, span);
  Add("counterweight.run", record.run, span);
  Add("counterweight.replica", record.replica, span);
  Add("counterweight.method", record.method, span);
  Add("counterweight.client", record.token, span);
  Add("counterweight.tokens", record.tokens, span);
  Add("counterweight.sequences", record.sequences, span);
  Add("counterweight.request_bytes", record.request_bytes, span);
  Add("counterweight.response_bytes", record.response_bytes, span);
  if (IsServerError(record.code)) {
    span->mutable_status()->set_code(kStatusError);
    span->mutable_status()->set_message(
        std::string(Shorten(record.message, kMaxTextBytes)));
  }
  const std::string parent = span->span_id();
  for (const StageSpan& stage : trace.stages) {
    otlp::Span* const child = spans->add_spans();
    child->set_trace_id(trace_id);
    child->set_span_id(Bytes(MakeSpanId()));
    child->set_parent_span_id(parent);
    child->set_name(std::string(stage.name));
    child->set_kind(kKindInternal);
    child->set_start_time_unix_nano(time(stage.start));
    child->set_end_time_unix_nano(time(stage.end));
    child->set_flags(1);
  }
}

}  // namespace counterweight::server
