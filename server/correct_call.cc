#include "server/correct_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/payload.h"
#include "server/status.h"

namespace counterweight::server {

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
      response_bytes_(response_bytes),
      correction_(service, "Correct", context, std::move(request_id)) {
  correction_.record().request_bytes =
      static_cast<int64_t>(request_bytes->Length());
}

void CorrectCall::Start(const ServiceContext* service,
                        grpc::CallbackServerContext* context,
                        grpc::ServerUnaryReactor* reactor,
                        grpc::ByteBuffer* request_bytes,
                        grpc::ByteBuffer* response_bytes,
                        std::string request_id) {
  const std::shared_ptr<CorrectCall> call(
      new CorrectCall(service, context, reactor, request_bytes, response_bytes,
                      std::move(request_id)));
  const int64_t held = call->correction_.record().request_bytes;
  // The bytes as received, and the message that they become.
  const int64_t bytes =
      held + InflatedBound(service->config.max_message_bytes, *request_bytes);
  call->entry_.Begin(
      service,
      {.client = call->correction_.queue_client(),
       .bytes = bytes,
       .held_bytes = held},
      [call](Admission::Verdict verdict, std::shared_ptr<Share> share) {
        call->Decided(verdict, std::move(share));
      });
}

void CorrectCall::Decided(Admission::Verdict verdict,
                          std::shared_ptr<Share> share) {
  share_ = std::move(share);
  if (share_ == nullptr) {
    Finish(correction_.Refuse(verdict));
  } else {
    RunAndFinish();
  }
}

void CorrectCall::RunAndFinish() {
  const grpc::Status status = correction_.Guard([this] { return Run(); });
  mask_.reset();
  Finish(status);
}

grpc::Status CorrectCall::Run() {
  RequestRecord& record = correction_.record();
  record.queue_seconds = correction_.Lap();
  if (grpc::Status status = correction_.StillWanted(); !status.ok()) {
    return status;
  }
  grpc::Status decoded = DecodeRequest();
  record.decode_seconds = correction_.Lap();
  if (!decoded.ok()) return decoded;
  if (grpc::Status status = correction_.StillWanted(); !status.ok()) {
    return status;
  }
  kernels::CorrectResult result;
  grpc::Status computed = Compute(&result);
  record.compute_seconds = correction_.Lap();
  if (!computed.ok()) return computed;
  // An answer that nobody reads is not a success: its retry is to count.
  if (grpc::Status status = correction_.StillWanted(); !status.ok()) {
    return status;
  }
  grpc::Status encoded = EncodeResponse(result.sums);
  record.encode_seconds = correction_.Lap();
  if (!encoded.ok()) return encoded;
  correction_.Publish(result.sums);
  return grpc::Status::OK;
}

grpc::Status CorrectCall::DecodeRequest() {
  grpc::Status status = ParsePayload(service_.config.max_message_bytes,
                                     request_bytes_, &correction_.request());
  if (!status.ok()) return status;
  status = correction_.Decode({.regions = correction_.regions()});
  if (!status.ok()) return status;
  status = ReserveRest();
  if (!status.ok()) return status;
  return correction_.decoded().has_shared_mask ? CopyMask() : grpc::Status::OK;
}

grpc::Status CorrectCall::CopyMask() {
  DecodedRequest& decoded = correction_.decoded();
  const auto size = static_cast<size_t>(decoded.num_positions);
  mask_ = service_.staging->Take(decoded.num_positions);
  if (mask_ == nullptr) return correction_.NoMemory();
  if (!decoded.has_device_mask) {
    std::memcpy(mask_.get(), decoded.batch.response_mask, size);
  } else {
    kernels::CorrectResult failure{.status =
                                       kernels::CorrectStatus::kDeviceError};
    if (!service_.corrector->CopyFromDevice(mask_.get(),
                                            decoded.batch.response_mask, size,
                                            &failure.device_error)) {
      failure.device = IndexOf(*decoded.device);
      return correction_.Judge(failure);
    }
  }
  const Violations violations = TakeMask(mask_.get(), &decoded);
  return violations.empty() ? grpc::Status::OK
                            : correction_.InvalidArgument(violations);
}

int CorrectCall::IndexOf(const kernels::DeviceUuid& uuid) const {
  for (const kernels::DeviceInfo& device : service_.backend.devices) {
    if (device.uuid == uuid) return device.index;
  }
  return -1;
}

grpc::Status CorrectCall::ReserveRest() {
  const DecodedRequest& decoded = correction_.decoded();
  // Outputs in the message, and the bytes that it becomes.
  int64_t bytes = 2 * OutputBytes(decoded) +
                  service_.corrector->ScratchBytes(decoded.spec, decoded.batch);
  if (decoded.has_shared_mask) bytes += decoded.num_positions;
  // The bytes as received are free by now.
  bytes -= correction_.record().request_bytes;
  return bytes <= 0 ? grpc::Status::OK
                    : correction_.Refuse(share_->Grow(bytes));
}

grpc::Status CorrectCall::Compute(kernels::CorrectResult* result) {
  const DecodedRequest& decoded = correction_.decoded();
  const kernels::Outputs outputs =
      AllocateOutputs(decoded, PlaceInMessage, &correction_.response());
  *result = service_.corrector
                ->Begin(decoded.spec, decoded.batch, outputs,
                        [this] { return !correction_.StillWanted().ok(); })
                ->Finish();
  return correction_.Judge(*result);
}

grpc::Status CorrectCall::EncodeResponse(const kernels::BatchSums& sums) {
  grpc::Status status = correction_.Encode(sums);
  if (!status.ok()) return status;
  status = SerializePayload(correction_.response(), response_bytes_);
  correction_.record().response_bytes =
      static_cast<int64_t>(response_bytes_->Length());
  return status;
}

void CorrectCall::Finish(const grpc::Status& status) {
  correction_.Record(status);
  AddPushback(status, context_);
  // The answer says that there is room again.
  share_.reset();
  reactor_->Finish(status);
}

}  // namespace counterweight::server
