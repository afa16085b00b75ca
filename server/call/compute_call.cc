#include "server/call/compute_call.h"

#include <chrono>
#include <utility>

#include "server/call/payload.h"

namespace counterweight::server {

ComputeCall::ComputeCall(const AdmitContext* admit, const ReportContext* report,
                         std::string_view rpc, std::shared_ptr<UnaryCall> unary,
                         grpc::ByteBuffer* request, std::string request_id,
                         const MakeWork& make_work)
    : admit_(*admit),
      unary_(std::move(unary)),
      call_(admit, report, rpc, unary_->context(), std::move(request_id)),
      work_(make_work(&call_)) {
  call_.record().request_bytes = static_cast<int64_t>(request->Length());
  request_.Swap(request);
}

void ComputeCall::Start(const AdmitContext* admit, const ReportContext* report,
                        std::string_view rpc, std::shared_ptr<UnaryCall> unary,
                        grpc::ByteBuffer* request, std::string request_id,
                        const MakeWork& make_work) {
  const std::shared_ptr<ComputeCall> self(
      new ComputeCall(admit, report, rpc, std::move(unary), request,
                      std::move(request_id), make_work));
  // A client that leaves gives up its place in every line.
  self->unary_->OnLeave([weak = std::weak_ptr<ComputeCall>(self)] {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    alive->admission_wait_.Abandon();
    alive->resumer_.Wake();
  });
  const int64_t held = self->call_.record().request_bytes;
  // The bytes as received, and the message that they become.
  const int64_t bytes =
      held +
      InflatedBound(admit->config->Get()->max_message_bytes, self->request_);
  self->admission_wait_.Begin(admit,
                              {.client = self->call_.queue_client(),
                               .bytes = bytes,
                               .held_bytes = held,
                               .received_bytes = held},
                              [self](Admission::Verdict verdict,
                                     std::shared_ptr<Reservation> reservation) {
                                self->Decided(verdict, std::move(reservation));
                              });
}

void ComputeCall::Decided(Admission::Verdict verdict,
                          std::shared_ptr<Reservation> reservation) {
  reservation_ = std::move(reservation);
  if (reservation_ == nullptr) {
    Finish(call_.Refuse(verdict));
  } else {
    length_ = Length();
    Run();
  }
}

void ComputeCall::Run() {
  const auto start = std::chrono::steady_clock::now();
  Executor& executor = *admit_.executor;
  for (;;) {
    const grpc::Status status = call_.Guard([this] { return RunStage(); });
    if (!status.ok() || stage_ == Stage::kDone) return Finish(status);
    if (waits_) {
      if (MustWait()) return;
    } else if (Length() != length_ ||
               executor.IsTurnOver(call_.queue_client(), start)) {
      return Resume();
    }
  }
}

void ComputeCall::Resume() {
  length_ = Length();
  admit_.executor->Continue(call_.queue_client(), length_,
                            [self = shared_from_this()] { self->Run(); });
}

Executor::Length ComputeCall::Length() const {
  return Executor::LengthOf(reservation_->bytes(), call_.record().sequences);
}

bool ComputeCall::MustWait() {
  return resumer_.Wait([self = shared_from_this()] { self->Resume(); });
}

grpc::Status ComputeCall::RunStage() {
  call_.EndStage("queue", &RequestRecord::queue_seconds);
  // Before the last stage too: an answer that is not read is no success, and
  // its retry is to count.
  if (grpc::Status status = call_.StillWanted(); !status.ok()) return status;
  grpc::Status status;
  switch (stage_) {
    case Stage::kDecode:
      status = work_->Decode(&request_, reservation_.get());
      reservation_->EndReceived();
      call_.EndStage("decode", &RequestRecord::decode_seconds);
      stage_ = Stage::kTurn;
      break;
    case Stage::kTurn:
      waits_ = !work_->TakeTurn([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->resumer_.Wake();
      });
      if (waits_) break;
      // Within this turn, so that a trace has no second wait.
      stage_ = Stage::kCompute;
      [[fallthrough]];
    case Stage::kCompute:
      status = work_->Compute();
      call_.EndStage("compute", &RequestRecord::compute_seconds);
      stage_ = Stage::kEncode;
      break;
    case Stage::kEncode:
      status = work_->Encode(&response_);
      call_.record().response_bytes = static_cast<int64_t>(response_.Length());
      call_.EndStage("encode", &RequestRecord::encode_seconds);
      stage_ = Stage::kDone;
      if (status.ok()) {
        if (work_->Corrects()) call_.CountStages();
        work_->Publish();
      }
      break;
    case Stage::kDone:
      break;
  }
  return status;
}

void ComputeCall::Finish(const grpc::Status& status) {
  call_.Record(status);
  // Its memory is free before another request gets the room.
  if (!status.ok()) {
    work_.reset();
    request_.Clear();
  }
  unary_->Finish(status, &response_, std::move(reservation_));
  // gRPC has its own copy of the answer, and freeing megabytes takes a while
  // that the client need not wait for.
  work_.reset();
}

}  // namespace counterweight::server
