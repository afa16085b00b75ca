#include "server/call/compute_call.h"

#include <chrono>
#include <utility>

#include "server/call/payload.h"

namespace counterweight::server {

ComputeCall::ComputeCall(const ServiceContext* service, std::string_view rpc,
                         std::shared_ptr<UnaryCall> call,
                         grpc::ByteBuffer* request, std::string request_id,
                         const MakeWork& make_work)
    : service_(*service),
      call_(std::move(call)),
      served_(service, rpc, call_->context(), std::move(request_id)),
      work_(make_work(&served_)) {
  served_.record().request_bytes = static_cast<int64_t>(request->Length());
  request_.Swap(request);
}

void ComputeCall::Start(const ServiceContext* service, std::string_view rpc,
                        std::shared_ptr<UnaryCall> call,
                        grpc::ByteBuffer* request, std::string request_id,
                        const MakeWork& make_work) {
  const std::shared_ptr<ComputeCall> self(
      new ComputeCall(service, rpc, std::move(call), request,
                      std::move(request_id), make_work));
  // A client that leaves gives up its place in every line.
  self->call_->OnLeave([weak = std::weak_ptr<ComputeCall>(self)] {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    alive->entry_.Abandon();
    alive->parking_.Wake();
  });
  const int64_t held = self->served_.record().request_bytes;
  // The bytes as received, and the message that they become.
  const int64_t bytes =
      held +
      InflatedBound(service->config->Get()->max_message_bytes, self->request_);
  self->entry_.Begin(
      service,
      {.client = self->served_.queue_client(),
       .bytes = bytes,
       .held_bytes = held,
       .received_bytes = held},
      [self](Admission::Verdict verdict, std::shared_ptr<Share> share) {
        self->Decided(verdict, std::move(share));
      });
}

void ComputeCall::Decided(Admission::Verdict verdict,
                          std::shared_ptr<Share> share) {
  share_ = std::move(share);
  if (share_ == nullptr) {
    Finish(served_.Refuse(verdict));
  } else {
    length_ = Length();
    Run();
  }
}

void ComputeCall::Run() {
  const auto start = std::chrono::steady_clock::now();
  Executor& executor = *service_.executor;
  for (;;) {
    const grpc::Status status = served_.Guard([this] { return RunStage(); });
    if (!status.ok() || stage_ == Stage::kDone) return Finish(status);
    if (waits_) {
      if (IsParked()) return;
    } else if (Length() != length_ ||
               executor.IsTurnOver(served_.queue_client(), start)) {
      return Resume();
    }
  }
}

void ComputeCall::Resume() {
  length_ = Length();
  service_.executor->Continue(served_.queue_client(), length_,
                              [self = shared_from_this()] { self->Run(); });
}

Executor::Length ComputeCall::Length() const {
  return Executor::LengthOf(share_->bytes(), served_.record().sequences);
}

bool ComputeCall::IsParked() {
  return parking_.Park([self = shared_from_this()] { self->Resume(); });
}

grpc::Status ComputeCall::RunStage() {
  served_.EndStage("queue", &RequestRecord::queue_seconds);
  // Before the last stage too: an answer that is not read is no success, and
  // its retry is to count.
  if (grpc::Status status = served_.StillWanted(); !status.ok()) return status;
  grpc::Status status;
  switch (stage_) {
    case Stage::kDecode:
      status = work_->Decode(&request_, share_.get());
      share_->EndReceived();
      served_.EndStage("decode", &RequestRecord::decode_seconds);
      stage_ = Stage::kTurn;
      break;
    case Stage::kTurn:
      waits_ = !work_->TakeTurn([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->parking_.Wake();
      });
      if (waits_) break;
      // Within this turn, so that a trace has no second wait.
      stage_ = Stage::kCompute;
      [[fallthrough]];
    case Stage::kCompute:
      status = work_->Compute();
      served_.EndStage("compute", &RequestRecord::compute_seconds);
      stage_ = Stage::kEncode;
      break;
    case Stage::kEncode:
      status = work_->Encode(&response_);
      served_.record().response_bytes =
          static_cast<int64_t>(response_.Length());
      served_.EndStage("encode", &RequestRecord::encode_seconds);
      stage_ = Stage::kDone;
      if (status.ok()) {
        served_.CountStages();
        work_->Publish();
      }
      break;
    case Stage::kDone:
      break;
  }
  return status;
}

void ComputeCall::Finish(const grpc::Status& status) {
  served_.Record(status);
  // Its memory is free before another request is told that there is room.
  if (!status.ok()) {
    work_.reset();
    request_.Clear();
  }
  call_->Finish(status, &response_, std::move(share_));
  // gRPC has its own copy of the answer, and freeing megabytes takes a while
  // that the client need not wait for.
  work_.reset();
}

}  // namespace counterweight::server
