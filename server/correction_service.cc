#include "server/correction_service.h"

#include <random>
#include <utility>

#include "server/codec.h"
#include "server/correct_call.h"
#include "server/correct_stream.h"
#include "server/dialects/dialect.h"
#include "server/payload.h"
#include "server/peer.h"
#include "server/status.h"
#include "server/version.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

uint64_t RandomPrefix() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

CorrectionService::CorrectionService(ServiceContext context)
    : service_(std::move(context)), id_prefix_(RandomPrefix()) {}

grpc::ServerUnaryReactor* CorrectionService::Correct(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  // gRPC made the buffer for this call alone and shows it as const; we free it
  // as soon as it is parsed.
  auto* const request_bytes = const_cast<grpc::ByteBuffer*>(request);
  CorrectCall::Start(&service_, context, reactor, request_bytes, response,
                     MakeRequestId());
  return reactor;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
CorrectionService::CorrectStream(grpc::CallbackServerContext* context) {
  // Streams before their admission take little memory each, but have no other
  // bound.
  const Config& config = service_.config;
  const int64_t most =
      config.max_requests_in_flight + config.max_queued_requests;
  const int64_t open = ++open_streams_;
  const std::shared_ptr<void> use = service_.uses->Use();
  std::shared_ptr<void> place(this, [this, use](void*) { --open_streams_; });
  if (open > most) {
    return server::CorrectStream::Refuse(&service_, context, MakeRequestId(),
                                         use, Admission::Verdict::kFull);
  }
  return server::CorrectStream::Start(&service_, context, MakeRequestId(),
                                      std::move(place));
}

grpc::ServerUnaryReactor* CorrectionService::ListMethods(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
    grpc::ByteBuffer* response) {
  v1::ListMethodsResponse message;
  EncodeMethods(&message);
  return Answer("ListMethods", message, context, response);
}

grpc::ServerUnaryReactor* CorrectionService::GetServerInfo(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
    grpc::ByteBuffer* response) {
  const kernels::BackendInfo& backend = service_.backend;
  const Config& config = service_.config;
  v1::GetServerInfoResponse message;
  message.set_version(Version());
  message.set_revision(Revision());
  message.set_numerics_version(kernels::kNumericsVersion);
  message.set_backend(backend.name);
  message.set_instruction_set(backend.instruction_set);
  message.set_threads(static_cast<uint32_t>(backend.threads));
  for (const kernels::DeviceInfo& device : backend.devices) {
    v1::Device* const added = message.add_devices();
    added->set_index(static_cast<uint32_t>(device.index));
    added->set_name(device.name);
    added->set_memory_bytes(device.memory_bytes);
    added->set_uuid(device.uuid.data(), device.uuid.size());
  }
  v1::Limits* const limits = message.mutable_limits();
  limits->set_max_message_bytes(
      static_cast<uint64_t>(config.max_message_bytes));
  limits->set_max_tokens(config.max_tokens);
  limits->set_max_sequences(config.max_sequences);
  limits->set_max_rules(kernels::kMaxRules);
  limits->set_max_chunk_bytes(static_cast<uint64_t>(kMaxChunkBytes));
  limits->set_max_bytes_in_flight(
      static_cast<uint64_t>(config.max_bytes_in_flight));
  for (const Dialect& dialect : Dialects()) {
    message.add_dialects(std::string(dialect.system));
  }
  message.add_features("loss");
  message.add_features("stream");
  // A path is for those who could open it.
  if (service_.regions != nullptr &&
      ParsePeer(context->peer()).transport == "unix") {
    message.add_features("shared_memory");
    if (!backend.devices.empty()) message.add_features("cuda_ipc");
    message.set_shared_memory_socket(service_.shared_memory_socket);
    limits->set_max_shared_memory_bytes(
        static_cast<uint64_t>(config.max_shared_memory_bytes));
  }
  return Answer("GetServerInfo", message, context, response);
}

grpc::ServerUnaryReactor* CorrectionService::Answer(
    std::string_view rpc, const google::protobuf::MessageLite& message,
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  const grpc::Status status = SerializePayload(message, response);
  Record(rpc, status, response->Length(), *context);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

void CorrectionService::Record(std::string_view rpc, const grpc::Status& status,
                               size_t response_bytes,
                               const grpc::CallbackServerContext& context) {
  service_.metrics->CountRequest(rpc, CodeName(status.error_code()));
  service_.log->Request(
      {.rpc = rpc,
       .request_id = MakeRequestId(),
       .code = status.error_code(),
       .message = status.error_message(),
       .peer = ParsePeer(context.peer()).transport,
       .response_bytes = static_cast<int64_t>(response_bytes)});
}

std::string CorrectionService::MakeRequestId() {
  return fmt::format("{:016x}-{}", id_prefix_, ++next_id_);
}

}  // namespace counterweight::server
