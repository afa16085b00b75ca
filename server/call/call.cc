#include "server/call/call.h"

#include <algorithm>
#include <new>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/code_name.h"
#include "server/base/monotonic.h"
#include "server/call/peer.h"
#include "server/call/status.h"
#include "server/engine/codec_labels.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Retry hint for a refused client: about one batch's time, so that a retry
// finds a free place; while draining, the time to find another server.
constexpr double kRetryWhenFullSeconds = 0.25;
constexpr double kRetryWhenDrainingSeconds = 1.0;

// Returns the caller's trace, or one of its own if spans are sent and the
// caller has none. As OpenTelemetry's samplers do by default, the caller's
// choice is followed, and requests without one are sampled.
std::optional<Trace> BeginTrace(const grpc::CallbackServerContext& context,
                                bool sends_spans,
                                std::chrono::steady_clock::time_point start) {
  const std::optional<Traceparent> parent = TraceparentOf(context);
  if (!parent && !sends_spans) return std::nullopt;
  const auto age =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::steady_clock::now() - start);
  Trace trace{.trace_id = parent ? parent->trace_id : MakeTraceId(),
              .parent_id = std::nullopt,
              .is_sampled = sends_spans && (!parent || parent->is_sampled),
              .start = std::chrono::system_clock::now() - age,
              .steady_start = start,
              .stages = {}};
  if (parent) trace.parent_id = parent->parent_id;
  return trace;
}

// Bounds client names, which are kept while requests wait.
constexpr size_t kMaxClientBytes = 64;

}  // namespace

grpc::Status ServerIsFull() {
  return TryAgain(grpc::StatusCode::RESOURCE_EXHAUSTED,
                  "the server has as many requests in flight as it may; try "
                  "again",
                  kRetryWhenFullSeconds);
}

Call::Call(const AdmitContext* admit, const ReportContext* report,
           std::string_view rpc, grpc::CallbackServerContext* context,
           std::string request_id)
    : admit_(*admit), report_(*report), context_(context) {
  Peer peer = PeerOf(*context, *admit->access);
  queue_client_.peer = std::move(peer.client);
  const auto name = context->client_metadata().find(kClientKey);
  if (name != context->client_metadata().end()) {
    queue_client_.name.assign(name->second.data(),
                              std::min(name->second.size(), kMaxClientBytes));
  }
  record_.rpc = rpc;
  record_.peer = peer.transport;
  token_ = std::move(peer.token);
  if (token_ != nullptr) record_.token = token_->name;
  record_.request_id = std::move(request_id);
  record_.trace = BeginTrace(*context, report->spans != nullptr, stage_start_);
}

grpc::Status Call::MayWrite(const std::string& run) const {
  if (token_ == nullptr || token_->runs.Allow(run)) return grpc::Status::OK;
  std::string refusal =
      fmt::format("is required of the token '{}'", token_->name);
  if (!run.empty()) {
    // A wrong label may hold anything.
    refusal = fmt::format(
        "the token '{}' may not write {}", token_->name,
        IsLabel(run) ? fmt::format("the run '{}'", run) : "this run");
  }
  return {grpc::StatusCode::PERMISSION_DENIED,
          fmt::format("labels.run: {}; its runs are {}", refusal,
                      token_->runs.ToString())};
}

grpc::Status Call::StillWanted() const {
  if (HasPassed(context_->raw_deadline())) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED,
            "the deadline passed before the batch was corrected"};
  }
  if (context_->IsCancelled()) {
    return {grpc::StatusCode::CANCELLED, "the client cancelled the request"};
  }
  return grpc::Status::OK;
}

grpc::Status Call::InvalidArgument(const Violations& violations) {
  record_.violations = static_cast<int64_t>(violations.size());
  return server::InvalidArgument(violations);
}

grpc::Status Call::Refuse(Admission::Verdict verdict) {
  switch (verdict) {
    case Admission::Verdict::kAdmitted:
      break;
    case Admission::Verdict::kFull:
      return ServerIsFull();
    case Admission::Verdict::kTooLarge:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              fmt::format("the batch needs more than the {} bytes of input, "
                          "scratch and output that this server has for all; "
                          "send it in smaller batches",
                          admit_.config->Get()->max_bytes_in_flight)};
    case Admission::Verdict::kClosed:
      return TryAgain(grpc::StatusCode::UNAVAILABLE,
                      "the server is shutting down; try again elsewhere",
                      kRetryWhenDrainingSeconds);
  }
  return grpc::Status::OK;
}

grpc::Status Call::NoMemory() {
  return TryAgain(grpc::StatusCode::RESOURCE_EXHAUSTED,
                  "the server has no memory for this request; try again, "
                  "or send a smaller batch",
                  kRetryWhenDrainingSeconds);
}

grpc::Status Call::Guard(const std::function<grpc::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  } catch (const std::exception& error) {
    return InternalError("exception", error.what());
  }
}

grpc::Status Call::InternalError(std::string_view event,
                                 std::string_view what) {
  report_.log->Event(spdlog::level::err, event,
                     {{"request_id", record_.request_id}, {"what", what}});
  // The cause may hold paths and addresses, so it stays in the log.
  return {grpc::StatusCode::INTERNAL,
          "internal error; the server's log has it under request_id " +
              record_.request_id};
}

void Call::EndStage(std::string_view stage, double RequestRecord::*seconds) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point start = std::exchange(stage_start_, now);
  record_.*seconds += std::chrono::duration<double>(now - start).count();
  if (record_.trace && record_.trace->is_sampled) {
    record_.trace->stages.push_back({stage, start, now});
  }
}

void Call::CountStages() {
  ServingMetrics& metrics = *report_.metrics;
  metrics.decode_seconds.Observe(record_.decode_seconds);
  metrics.queue_seconds.Observe(record_.queue_seconds);
  metrics.compute_seconds.Observe(record_.compute_seconds);
  metrics.encode_seconds.Observe(record_.encode_seconds);
  metrics.request_seconds.Observe(
      record_.decode_seconds + record_.queue_seconds + record_.receive_seconds +
      record_.compute_seconds + record_.encode_seconds);
  metrics.response_bytes.Increment(static_cast<double>(record_.response_bytes));
}

void Call::Record(const grpc::Status& status) {
  record_.code = status.error_code();
  record_.message = status.error_message();
  report_.metrics->request_bytes.Increment(
      static_cast<double>(record_.request_bytes));
  report_.metrics->CountRequest(record_.rpc, CodeName(record_.code));
  report_.log->Request(record_);
  if (record_.trace && record_.trace->is_sampled) {
    report_.spans->Add(record_);
  }
}

}  // namespace counterweight::server
