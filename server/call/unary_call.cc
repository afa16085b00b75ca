#include "server/call/unary_call.h"

#include <utility>

#include "server/call/arrivals.h"
#include "server/call/call.h"
#include "server/call/peer.h"
#include "server/call/status.h"

namespace counterweight::server {

using std::chrono::steady_clock;

UnaryCall::UnaryCall(const AdmitContext* admit,
                     grpc::CallbackServerContext* context,
                     std::shared_ptr<void> use, OnRequest on_request,
                     OnEnd on_end)
    : use_(std::move(use)),
      admit_(*admit),
      context_(context),
      on_request_(std::move(on_request)),
      on_end_(std::move(on_end)),
      since_(steady_clock::now()) {}

UnaryCall* UnaryCall::Start(const AdmitContext* admit,
                            grpc::CallbackServerContext* context,
                            std::shared_ptr<void> use, OnRequest on_request,
                            OnEnd on_end) {
  const std::shared_ptr<UnaryCall> call(
      new UnaryCall(admit, context, std::move(use), std::move(on_request),
                    std::move(on_end)));
  call->self_ = call;
  std::shared_ptr<void> place = admit->arrivals->Enter(
      PeerOf(*context, *admit->access).client, context->peer(), call->since_,
      [weak = std::weak_ptr<UnaryCall>(call)] {
        if (const auto self = weak.lock()) self->EndEarly(ServerIsFull());
      });
  if (place == nullptr) {
    call->EndEarly(ServerIsFull());
    return call.get();
  }
  const std::lock_guard<std::mutex> lock(call->mutex_);
  call->watch_ = admit->clock->Watch(call);
  // It may have ended already to make room.
  if (call->state_ == State::kReceiving) {
    call->place_ = std::move(place);
    call->StartRead(&call->request_);
  }
  return call.get();
}

void UnaryCall::OnLeave(std::function<void()> on_leave) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_left_) {
      on_leave_ = std::move(on_leave);
      return;
    }
  }
  on_leave();
}

void UnaryCall::Finish(const grpc::Status& status, grpc::ByteBuffer* response,
                       std::shared_ptr<Reservation> reservation) {
  // Destroyed after the lock, and not before gRPC is called.
  const std::shared_ptr<UnaryCall> self = shared_from_this();
  std::function<void()> on_leave;
  // Frees the reservation first, so that a client that reads its error finds
  // room.
  if (!status.ok()) reservation.reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  on_leave.swap(on_leave_);
  state_ = State::kEnded;
  since_ = steady_clock::now();
  if (!status.ok()) {
    AddErrorTrailers(status, context_);
    RawReactor::Finish(status);
    return;
  }
  reservation_ = std::move(reservation);
  if (reservation_ != nullptr) {
    reservation_->BeginAnswer(static_cast<int64_t>(response->Length()));
  }
  response_.Swap(response);
  StartWriteAndFinish(&response_, grpc::WriteOptions(), status);
}

void UnaryCall::EndEarly(const grpc::Status& status) {
  std::shared_ptr<void> place;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kReceiving) return;
  state_ = State::kEnded;
  since_ = steady_clock::now();
  place = std::move(place_);
  on_end_(status);
  AddErrorTrailers(status, context_);
  RawReactor::Finish(status);
}

void UnaryCall::OnReadDone(bool ok) {
  const std::shared_ptr<UnaryCall> self = shared_from_this();
  std::shared_ptr<void> place;
  if (!ok) {
    // OnCancel handles a client that left.
    if (!context_->IsCancelled()) {
      EndEarly({grpc::StatusCode::INVALID_ARGUMENT,
                "the call ended without a message"});
    }
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_ != State::kReceiving) return;
    state_ = State::kWorking;
    has_request_ = true;
    place = std::move(place_);
  }
  grpc::ByteBuffer request;
  request.Swap(&request_);
  // It has arrived; its answer may be out before on_request_ returns.
  place.reset();
  on_request_(self, &request);
}

void UnaryCall::OnCancel() {
  const std::shared_ptr<UnaryCall> self = shared_from_this();
  std::function<void()> on_leave;
  bool has_request = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_left_ = true;
    has_request = has_request_;
    on_leave = std::exchange(on_leave_, nullptr);
  }
  if (!has_request && admit_.resets != nullptr) {
    admit_.resets->Add(context_->peer(), steady_clock::now());
  }
  EndEarly({grpc::StatusCode::CANCELLED, "the client cancelled the request"});
  if (on_leave) on_leave();
}

void UnaryCall::OnDone() {
  // Destroyed after the lock.
  std::shared_ptr<UnaryCall> self;
  std::shared_ptr<Reservation> reservation;
  std::shared_ptr<void> watch;
  const std::lock_guard<std::mutex> lock(mutex_);
  is_done_ = true;
  self = std::move(self_);
  reservation = std::move(reservation_);
  watch = std::move(watch_);
}

void UnaryCall::OnTick(steady_clock::time_point now) {
  bool is_late = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::chrono::duration<double> elapsed = now - since_;
    if (is_done_ || state_ == State::kWorking ||
        elapsed.count() < admit_.config->Get()->unary_timeout_s) {
      return;
    }
    is_late = state_ == State::kReceiving;
    // A client that does not read cannot receive an error either.
    if (!is_late) context_->TryCancel();
  }
  if (is_late) {
    EndEarly({grpc::StatusCode::DEADLINE_EXCEEDED,
              "the request did not arrive whole within --unary_timeout; "
              "CorrectStream takes as long as it makes progress"});
  }
}

}  // namespace counterweight::server
