#include "server/correct_call.h"

#include <exception>
#include <new>
#include <utility>

#include "server/payload.h"
#include "server/peer.h"
#include "server/status.h"

namespace counterweight::server {
namespace {

// What a refused client waits: about one batch's time, so that a retry finds a
// free place; while draining, the time for another server to be found.
constexpr double kRetryWhenFullSeconds = 0.25;
constexpr double kRetryWhenDrainingSeconds = 1.0;

}  // namespace

CorrectCall::CorrectCall(const ServiceContext* service,
                         grpc::CallbackServerContext* context,
                         grpc::ServerUnaryReactor* reactor,
                         grpc::ByteBuffer* request_bytes,
                         grpc::ByteBuffer* response_bytes,
                         std::string request_id)
    : service_(*service),
      context_(context),
      reactor_(reactor),
      request_bytes_(request_bytes),
      response_bytes_(response_bytes) {
  Peer peer = ParsePeer(context->peer());
  client_ = std::move(peer.client);
  record_.rpc = "Correct";
  record_.peer = peer.transport;
  record_.request_id = std::move(request_id);
  record_.request_bytes = static_cast<int64_t>(request_bytes->Length());
}

void CorrectCall::Start(const ServiceContext* service,
                        grpc::CallbackServerContext* context,
                        grpc::ServerUnaryReactor* reactor,
                        grpc::ByteBuffer* request_bytes,
                        grpc::ByteBuffer* response_bytes,
                        std::string request_id) {
  std::unique_ptr<CorrectCall> call(
      new CorrectCall(service, context, reactor, request_bytes, response_bytes,
                      std::move(request_id)));
  switch (
      service->admission->Admit(call->record_.request_bytes, &call->ticket_)) {
    case Admission::Verdict::kFull:
      return call->Finish(
          call->Refuse(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       "the server has as many requests in flight as it may; "
                       "try again",
                       kRetryWhenFullSeconds));
    case Admission::Verdict::kClosed:
      return call->Finish(
          call->Refuse(grpc::StatusCode::UNAVAILABLE,
                       "the server is shutting down; try again elsewhere",
                       kRetryWhenDrainingSeconds));
    case Admission::Verdict::kAdmitted:
      break;
  }
  service->metrics->requests_in_flight.Increment();
  service->metrics->bytes_in_flight.Increment(
      static_cast<double>(call->record_.request_bytes));
  // std::function wants copyable captures, so ownership passes by hand.
  service->executor->Submit([raw = call.release()] {
    const std::unique_ptr<CorrectCall> owned(raw);
    owned->RunAndFinish();
  });
}

void CorrectCall::RunAndFinish() {
  grpc::Status status;
  try {
    status = Run();
  } catch (const std::bad_alloc&) {
    status = Refuse(grpc::StatusCode::RESOURCE_EXHAUSTED,
                    "the server has no memory for this request; try again, or "
                    "send a smaller batch",
                    kRetryWhenDrainingSeconds);
  } catch (const std::exception& error) {
    status = InternalError("exception", error.what());
  }
  service_.metrics->requests_in_flight.Decrement();
  service_.metrics->bytes_in_flight.Decrement(
      static_cast<double>(record_.request_bytes));
  Finish(status);
}

grpc::Status CorrectCall::Run() {
  record_.queue_seconds = Lap();
  if (grpc::Status status = StillWanted(); !status.ok()) return status;

  grpc::Status decoded = DecodeRequest();
  record_.decode_seconds = Lap();
  if (!decoded.ok()) return decoded;
  if (grpc::Status status = StillWanted(); !status.ok()) return status;

  kernels::CorrectResult result;
  grpc::Status computed = Compute(&result);
  record_.compute_seconds = Lap();
  if (!computed.ok()) return computed;
  // An answer that nobody reads is not a success: its retry is to count.
  if (grpc::Status status = StillWanted(); !status.ok()) return status;

  grpc::Status encoded = EncodeResponse(result.sums);
  record_.encode_seconds = Lap();
  if (!encoded.ok()) return encoded;
  Publish(result.sums);
  return grpc::Status::OK;
}

grpc::Status CorrectCall::DecodeRequest() {
  const Config& config = service_.config;
  if (grpc::Status status =
          ParsePayload(config.max_message_bytes, request_bytes_, &request_);
      !status.ok()) {
    return status;
  }
  if (!request_.request_id().empty()) {
    record_.request_id = request_.request_id();
  }
  record_.run = request_.labels().run();
  record_.replica = request_.labels().replica();
  const Violations violations =
      Decode(request_, {config.max_tokens, config.max_sequences}, &decoded_);
  record_.violations = static_cast<int64_t>(violations.size());
  if (!violations.empty()) return InvalidArgument(violations);
  record_.method = decoded_.method_name;
  record_.sequences = decoded_.batch.num_sequences;
  return grpc::Status::OK;
}

grpc::Status CorrectCall::Compute(kernels::CorrectResult* result) {
  const kernels::Outputs outputs = AllocateOutputs(decoded_, &response_);
  *result = service_.corrector->Correct(decoded_.spec, decoded_.batch, outputs);
  switch (result->status) {
    case kernels::CorrectStatus::kOk:
      record_.tokens = result->sums.tokens;
      return grpc::Status::OK;
    case kernels::CorrectStatus::kNonFinite:
      service_.metrics->non_finite_rejections.Increment();
      record_.violations = 1;
      return InvalidArgument({ToViolation(result->non_finite)});
    case kernels::CorrectStatus::kDeviceError:
      break;
  }
  service_.on_device_error();
  return InternalError("device_error", result->device_error);
}

grpc::Status CorrectCall::EncodeResponse(const kernels::BatchSums& sums) {
  const Clock::time_point start = Clock::now();
  const Violations violations = Encode(decoded_, sums, &response_);
  record_.violations = static_cast<int64_t>(violations.size());
  if (!violations.empty()) return InvalidArgument(violations);
  response_.set_request_id(record_.request_id);
  response_.set_numerics_version(kernels::kNumericsVersion);
  response_.set_backend(service_.backend.name);
  v1::Timing* const timing = response_.mutable_timing();
  timing->set_decode_seconds(record_.decode_seconds);
  timing->set_queue_seconds(record_.queue_seconds);
  timing->set_compute_seconds(record_.compute_seconds);
  // All but the serialization, which cannot tell its own time.
  timing->set_encode_seconds(
      std::chrono::duration<double>(Clock::now() - start).count());
  grpc::Status status = SerializePayload(response_, response_bytes_);
  record_.response_bytes = static_cast<int64_t>(response_bytes_->Length());
  return status;
}

grpc::Status CorrectCall::StillWanted() const {
  if (context_->deadline() <= std::chrono::system_clock::now()) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED,
            "the deadline passed before the batch was corrected"};
  }
  if (context_->IsCancelled()) {
    return {grpc::StatusCode::CANCELLED, "the client cancelled the request"};
  }
  return grpc::Status::OK;
}

grpc::Status CorrectCall::InternalError(std::string_view event,
                                        std::string_view what) {
  JsonObject fields;
  fields.Add("request_id", record_.request_id).Add("what", what);
  service_.log->Event(spdlog::level::err, event, fields);
  // The cause may hold paths and addresses, so it stays in the log.
  return {grpc::StatusCode::INTERNAL,
          "internal error; the server's log has it under request_id " +
              record_.request_id};
}

grpc::Status CorrectCall::Refuse(grpc::StatusCode code,
                                 std::string_view message,
                                 double retry_after_s) {
  // Read by gRPC's own retry policies (proposal A6), as RetryInfo is by our
  // clients.
  context_->AddTrailingMetadata(
      "grpc-retry-pushback-ms",
      std::to_string(static_cast<int64_t>(retry_after_s * 1000)));
  return TryAgain(code, message, retry_after_s);
}

void CorrectCall::Publish(const kernels::BatchSums& sums) {
  ServingMetrics& metrics = *service_.metrics;
  metrics.decode_seconds.Observe(record_.decode_seconds);
  metrics.queue_seconds.Observe(record_.queue_seconds);
  metrics.compute_seconds.Observe(record_.compute_seconds);
  metrics.encode_seconds.Observe(record_.encode_seconds);
  metrics.request_seconds.Observe(
      record_.decode_seconds + record_.queue_seconds + record_.compute_seconds +
      record_.encode_seconds);
  metrics.tokens.Increment(static_cast<double>(sums.tokens));
  metrics.sequences.Increment(static_cast<double>(sums.num_sequences));
  metrics.response_bytes.Increment(static_cast<double>(record_.response_bytes));
  service_.drift->Publish(
      {.client = client_,
       .run = record_.run,
       .request_id = request_.request_id(),
       .has_weight = decoded_.spec.weight.level != kernels::Level::kNone,
       .rule_names = &decoded_.rule_names,
       .sums = &sums});
}

void CorrectCall::Finish(const grpc::Status& status) {
  record_.code = status.error_code();
  record_.message = status.error_message();
  service_.metrics->request_bytes.Increment(
      static_cast<double>(record_.request_bytes));
  service_.metrics->CountRequest(record_.rpc, CodeName(record_.code));
  service_.log->Request(record_);
  reactor_->Finish(status);
}

double CorrectCall::Lap() {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> seconds =
      now - std::exchange(stage_start_, now);
  return seconds.count();
}

}  // namespace counterweight::server
