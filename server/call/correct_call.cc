#include "server/call/correct_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/call/payload.h"
#include "server/call/status.h"

namespace counterweight::server {

CorrectCall::CorrectCall(const ServiceContext* service,
                         std::shared_ptr<UnaryCall> call,
                         grpc::ByteBuffer* request, std::string request_id)
    : service_(*service),
      call_(std::move(call)),
      correction_(service, "Correct", call_->context(), std::move(request_id)) {
  correction_.record().request_bytes = static_cast<int64_t>(request->Length());
  request_.Swap(request);
}

void CorrectCall::Start(const ServiceContext* service,
                        std::shared_ptr<UnaryCall> call,
                        grpc::ByteBuffer* request, std::string request_id) {
  const std::shared_ptr<CorrectCall> correct(new CorrectCall(
      service, std::move(call), request, std::move(request_id)));
  // A client that leaves gives up its place in the queue.
  correct->call_->OnLeave([weak = std::weak_ptr<CorrectCall>(correct)] {
    if (const auto self = weak.lock()) self->entry_.Abandon();
  });
  const int64_t held = correct->correction_.record().request_bytes;
  // The bytes as received, and the message that they become.
  const int64_t bytes =
      held + InflatedBound(service->config->Get()->max_message_bytes,
                           correct->request_);
  correct->entry_.Begin(
      service,
      {.client = correct->correction_.queue_client(),
       .bytes = bytes,
       .held_bytes = held},
      [correct](Admission::Verdict verdict, std::shared_ptr<Share> share) {
        correct->Decided(verdict, std::move(share));
      });
}

void CorrectCall::Decided(Admission::Verdict verdict,
                          std::shared_ptr<Share> share) {
  share_ = std::move(share);
  if (share_ == nullptr) {
    Finish(correction_.Refuse(verdict));
  } else {
    Run();
  }
}

void CorrectCall::Run() {
  const std::string& peer = correction_.queue_client().peer;
  for (;;) {
    const grpc::Status status =
        correction_.Guard([this] { return RunStage(); });
    if (!status.ok() || stage_ == Stage::kDone) {
      mask_.reset();
      return Finish(status);
    }
    if (service_.executor->IsWantedByOthers(peer)) {
      service_.executor->Submit(peer,
                                [self = shared_from_this()] { self->Run(); });
      return;
    }
  }
}

grpc::Status CorrectCall::RunStage() {
  correction_.EndStage("queue", &RequestRecord::queue_seconds);
  // Before the last stage too: an answer that is not read is no success, and
  // its retry is to count.
  if (grpc::Status status = correction_.StillWanted(); !status.ok()) {
    return status;
  }
  grpc::Status status;
  switch (stage_) {
    case Stage::kDecode:
      status = DecodeRequest();
      correction_.EndStage("decode", &RequestRecord::decode_seconds);
      stage_ = Stage::kCompute;
      break;
    case Stage::kCompute:
      status = Compute();
      correction_.EndStage("compute", &RequestRecord::compute_seconds);
      stage_ = Stage::kEncode;
      break;
    case Stage::kEncode:
      status = EncodeResponse();
      correction_.EndStage("encode", &RequestRecord::encode_seconds);
      stage_ = Stage::kDone;
      if (status.ok()) correction_.Publish(result_.sums);
      break;
    case Stage::kDone:
      break;
  }
  return status;
}

grpc::Status CorrectCall::DecodeRequest() {
  grpc::Status status =
      ParsePayload(service_.config->Get()->max_message_bytes, &request_,
                   [this](auto* input) {
                     return correction_.Parse(input, /*has_data=*/true);
                   });
  if (!status.ok()) return status;
  status = correction_.Decode({.regions = correction_.regions()},
                              [this] { return correction_.StillWanted(); });
  if (!status.ok()) return status;
  status = ReserveRest();
  if (!status.ok()) return status;
  return correction_.decoded().tensors.has_shared_mask ? CopyMask()
                                                       : grpc::Status::OK;
}

grpc::Status CorrectCall::CopyMask() {
  const Decoded& decoded = correction_.decoded();
  const uint8_t* const shared = decoded.tensors.response_mask;
  const auto size = static_cast<size_t>(decoded.layout.num_positions);
  mask_ = service_.staging->Take(decoded.layout.num_positions);
  if (mask_ == nullptr) return correction_.NoMemory();
  if (!decoded.tensors.has_device_mask) {
    std::memcpy(mask_.get(), shared, size);
  } else {
    kernels::CorrectResult failure{.status =
                                       kernels::CorrectStatus::kDeviceError};
    if (!service_.corrector->CopyFromDevice(mask_.get(), shared, size,
                                            &failure.device_error)) {
      failure.device = IndexOf(*decoded.tensors.device);
      return correction_.Judge(failure);
    }
  }
  const Violations violations = CheckMask(mask_.get(), decoded.tensors);
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
  const Decoded& decoded = correction_.decoded();
  // Outputs in the message, and the bytes that it becomes.
  int64_t bytes =
      2 * OutputBytes(decoded.outputs, decoded.layout) +
      service_.corrector->ScratchBytes(decoded.method.spec, BatchOf(decoded));
  if (decoded.tensors.has_shared_mask) bytes += decoded.layout.num_positions;
  bytes += correction_.ObjectBytes();
  // Admitted so far: the bytes as received, which are free by now, and the
  // bound of the parsed message, which the objects hold.
  bytes -= share_->bytes();
  return bytes <= 0 ? grpc::Status::OK
                    : correction_.Refuse(share_->Grow(bytes));
}

grpc::Status CorrectCall::Compute() {
  const Decoded& decoded = correction_.decoded();
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.outputs, decoded.layout, PlaceInMessage, &correction_.response());
  kernels::Batch batch = BatchOf(decoded);
  if (mask_ != nullptr) {
    batch.response_mask = reinterpret_cast<const uint8_t*>(mask_.get());
  }
  result_ = service_.corrector
                ->Begin(decoded.method.spec, batch, outputs,
                        [this] { return !correction_.StillWanted().ok(); })
                ->Finish();
  return correction_.Judge(result_);
}

grpc::Status CorrectCall::EncodeResponse() {
  grpc::Status status = correction_.Encode(result_.sums);
  if (!status.ok()) return status;
  status = SerializePayload(correction_.response(), &response_bytes_);
  correction_.record().response_bytes =
      static_cast<int64_t>(response_bytes_.Length());
  return status;
}

void CorrectCall::Finish(const grpc::Status& status) {
  correction_.Record(status);
  call_->Finish(status, &response_bytes_, std::move(share_));
  // gRPC has its own copy of the answer, and freeing megabytes takes a while
  // that the client need not wait for.
  correction_.Clear();
}

}  // namespace counterweight::server
