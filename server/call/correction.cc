#include "server/call/correction.h"

#include <algorithm>
#include <new>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/call/peer.h"
#include "server/call/status.h"
#include "server/engine/request_scan.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Retry hint for a refused client: about one batch's time, so that a retry
// finds a free place; while draining, the time to find another server.
constexpr double kRetryWhenFullSeconds = 0.25;
constexpr double kRetryWhenDrainingSeconds = 1.0;
// Another process on the device holds its memory for about a training step.
constexpr double kRetryWhenDeviceFullSeconds = 1.0;

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

Correction::Correction(const ServiceContext* service, std::string_view rpc,
                       grpc::CallbackServerContext* context,
                       std::string request_id)
    : service_(*service), context_(context) {
  Peer peer = PeerOf(*context, *service->access);
  queue_client_.peer = std::move(peer.client);
  const auto name = context->client_metadata().find(kClientKey);
  if (name != context->client_metadata().end()) {
    queue_client_.name.assign(name->second.data(),
                              std::min(name->second.size(), kMaxClientBytes));
  }
  record_.rpc = rpc;
  record_.peer = peer.transport;
  record_.token = std::move(peer.token);
  record_.request_id = std::move(request_id);
  record_.trace = BeginTrace(*context, service->spans != nullptr, stage_start_);
}

const Regions* Correction::regions() const {
  return record_.peer == "tcp" ? nullptr : service_.regions;
}

grpc::Status Correction::Parse(google::protobuf::io::ZeroCopyInputStream* input,
                               bool has_data) {
  RequestScan scan(service_.config->Get()->max_sequences, has_data);
  ScannedStream scanned(input, &scan);
  const bool parsed = request_.ParseFromZeroCopyStream(&scanned);
  if (scan.violation()) return InvalidArgument({*scan.violation()});
  if (!parsed || scan.is_refused()) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            fmt::format("the request is not a {}: its bytes do not parse",
                        request_.GetTypeName())};
  }
  // They would be kept while the request waits.
  request_.DiscardUnknownFields();
  return grpc::Status::OK;
}

grpc::Status Correction::Decode(PayloadSource source,
                                const std::function<grpc::Status()>& wanted) {
  if (!request_.request_id().empty()) {
    record_.request_id = request_.request_id();
  }
  record_.run = request_.labels().run();
  record_.replica = request_.labels().replica();
  grpc::Status status;
  source.is_wanted = [&] {
    if (status.ok()) status = wanted();
    return status.ok();
  };
  const std::shared_ptr<const Config> config = service_.config->Get();
  Result<Decoded> decoded = server::Decode(
      request_, {config->max_tokens, config->max_sequences}, source);
  if (!status.ok()) return status;
  if (!decoded.ok()) return InvalidArgument(decoded.violations);
  decoded_.emplace(std::move(decoded.value));
  record_.method = decoded_->method.name;
  record_.sequences = decoded_->layout.num_sequences;
  return grpc::Status::OK;
}

grpc::Status Correction::Judge(const kernels::CorrectResult& result) {
  service_.metrics->CountDevice(result);
  switch (result.status) {
    case kernels::CorrectStatus::kOk:
      record_.tokens = result.sums.tokens;
      return grpc::Status::OK;
    case kernels::CorrectStatus::kNonFinite:
      service_.metrics->non_finite_rejections.Increment();
      return InvalidArgument({ToViolation(result.non_finite)});
    case kernels::CorrectStatus::kStopped: {
      grpc::Status status = StillWanted();
      // The clock may have been set back since the run asked.
      return status.ok() ? grpc::Status::CANCELLED : status;
    }
    case kernels::CorrectStatus::kDeviceFull:
      return TryAgain(grpc::StatusCode::RESOURCE_EXHAUSTED,
                      "the device has no memory for this batch; try again, or "
                      "send a smaller batch",
                      kRetryWhenDeviceFullSeconds);
    case kernels::CorrectStatus::kDeviceError:
      break;
  }
  service_.on_device_error();
  return InternalError(
      "device_error",
      fmt::format("device {}: {}", result.device, result.device_error));
}

grpc::Status Correction::Encode(const kernels::BatchSums& sums) {
  const Clock::time_point start = Clock::now();
  const Violations violations = server::Encode(*decoded_, sums, &response_);
  if (!violations.empty()) return InvalidArgument(violations);
  response_.set_request_id(record_.request_id);
  response_.set_numerics_version(kernels::kNumericsVersion);
  response_.set_backend(service_.backend.name);
  v1::Timing* const timing = response_.mutable_timing();
  timing->set_decode_seconds(record_.decode_seconds);
  timing->set_queue_seconds(record_.queue_seconds);
  timing->set_receive_seconds(record_.receive_seconds);
  timing->set_compute_seconds(record_.compute_seconds);
  // All but the serialization, which cannot tell its own time.
  timing->set_encode_seconds(
      std::chrono::duration<double>(Clock::now() - start).count());
  return grpc::Status::OK;
}

void Correction::Publish(const kernels::BatchSums& sums) {
  ServingMetrics& metrics = *service_.metrics;
  metrics.decode_seconds.Observe(record_.decode_seconds);
  metrics.queue_seconds.Observe(record_.queue_seconds);
  if (record_.rpc == "CorrectStream") {
    metrics.receive_seconds.Observe(record_.receive_seconds);
  }
  metrics.compute_seconds.Observe(record_.compute_seconds);
  metrics.encode_seconds.Observe(record_.encode_seconds);
  metrics.request_seconds.Observe(
      record_.decode_seconds + record_.queue_seconds + record_.receive_seconds +
      record_.compute_seconds + record_.encode_seconds);
  metrics.tokens.Increment(static_cast<double>(sums.tokens));
  metrics.sequences.Increment(static_cast<double>(sums.num_sequences));
  metrics.response_bytes.Increment(static_cast<double>(record_.response_bytes));
  if (decoded_->omits_metrics) return;
  const v1::Labels& labels = request_.labels();
  const std::optional<int64_t> version =
      labels.has_policy_version() ? std::optional(labels.policy_version())
                                  : std::nullopt;
  service_.drift->Publish({.client = queue_client_.peer,
                           .run = record_.run,
                           .policy_version = version,
                           .request_id = request_.request_id(),
                           .spec = &decoded_->method.spec,
                           .rule_names = &decoded_->method.rule_names,
                           .sums = &sums});
}

void Correction::Record(const grpc::Status& status) {
  record_.code = status.error_code();
  record_.message = status.error_message();
  service_.metrics->request_bytes.Increment(
      static_cast<double>(record_.request_bytes));
  service_.metrics->CountRequest(record_.rpc, CodeName(record_.code));
  service_.log->Request(record_);
  if (record_.trace && record_.trace->is_sampled) {
    service_.spans->Add(record_);
  }
}

grpc::Status Correction::StillWanted() const {
  if (context_->deadline() <= std::chrono::system_clock::now()) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED,
            "the deadline passed before the batch was corrected"};
  }
  if (context_->IsCancelled()) {
    return {grpc::StatusCode::CANCELLED, "the client cancelled the request"};
  }
  return grpc::Status::OK;
}

grpc::Status Correction::InvalidArgument(const Violations& violations) {
  record_.violations = static_cast<int64_t>(violations.size());
  return server::InvalidArgument(violations);
}

grpc::Status Correction::Refuse(Admission::Verdict verdict) {
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
                          service_.config->Get()->max_bytes_in_flight)};
    case Admission::Verdict::kClosed:
      return TryAgain(grpc::StatusCode::UNAVAILABLE,
                      "the server is shutting down; try again elsewhere",
                      kRetryWhenDrainingSeconds);
  }
  return grpc::Status::OK;
}

grpc::Status Correction::NoMemory() {
  return TryAgain(grpc::StatusCode::RESOURCE_EXHAUSTED,
                  "the server has no memory for this request; try again, "
                  "or send a smaller batch",
                  kRetryWhenDrainingSeconds);
}

grpc::Status Correction::Guard(const std::function<grpc::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemory();
  } catch (const std::exception& error) {
    return InternalError("exception", error.what());
  }
}

int64_t Correction::ObjectBytes() const {
  return static_cast<int64_t>(
      request_.SpaceUsedLong() +
      decoded_->layout.offsets.capacity() * sizeof(int64_t) +
      decoded_->groups.of_rows.capacity() * sizeof(int32_t));
}

void Correction::Clear() {
  request_ = v1::CorrectRequest();
  decoded_.reset();
  response_ = v1::CorrectResponse();
}

void Correction::EndStage(std::string_view stage,
                          double RequestRecord::*seconds) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point start = std::exchange(stage_start_, now);
  record_.*seconds += std::chrono::duration<double>(now - start).count();
  if (record_.trace && record_.trace->is_sampled) {
    record_.trace->stages.push_back({stage, start, now});
  }
}

grpc::Status Correction::InternalError(std::string_view event,
                                       std::string_view what) {
  service_.log->Event(spdlog::level::err, event,
                      {{"request_id", record_.request_id}, {"what", what}});
  // The cause may hold paths and addresses, so it stays in the log.
  return {grpc::StatusCode::INTERNAL,
          "internal error; the server's log has it under request_id " +
              record_.request_id};
}

}  // namespace counterweight::server
