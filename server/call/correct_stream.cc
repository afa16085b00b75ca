#include "server/call/correct_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/call/status.h"
#include "server/engine/frame.h"

namespace counterweight::server {

using std::chrono::steady_clock;

namespace {

// A stream is to move all that it reserved in this time.
constexpr double kLongestTransferSeconds = 60.0;
// Silence that is forgiven after the admission while others wait: a round trip
// and the client's first chunk.
constexpr double kGraceSeconds = 0.25;
// The same towards requests of its own peer.
constexpr double kSilenceSeconds = 1.0;
constexpr double kRetryAfterGivingWaySeconds = 1.0;

}  // namespace

CorrectStream::CorrectStream(const AdmitContext* admit,
                             const ComputeContext* compute,
                             const ReportContext* report, std::string_view rpc,
                             grpc::CallbackServerContext* context,
                             std::string request_id, std::shared_ptr<void> use)
    : use_(std::move(use)),
      admit_(*admit),
      compute_(*compute),
      report_(*report),
      context_(context),
      state_since_(steady_clock::now()),
      window_since_(state_since_),
      call_(admit, report, rpc, context, std::move(request_id)),
      correction_(compute, report, &call_) {}

CorrectStream::~CorrectStream() { call_.Record(end_); }

CorrectStream* CorrectStream::Start(const AdmitContext* admit,
                                    const ComputeContext* compute,
                                    const ReportContext* report,
                                    std::string_view rpc,
                                    grpc::CallbackServerContext* context,
                                    std::string request_id,
                                    std::shared_ptr<void> use) {
  const std::shared_ptr<CorrectStream> stream(
      new CorrectStream(admit, compute, report, rpc, context,
                        std::move(request_id), std::move(use)));
  stream->self_ = stream;
  std::shared_ptr<void> place = admit->arrivals->Enter(
      stream->call_.queue_client().peer, context->peer(), stream->state_since_,
      [weak = std::weak_ptr<CorrectStream>(stream)] {
        if (const auto self = weak.lock()) self->GiveWay();
      });
  const std::lock_guard<std::mutex> lock(stream->mutex_);
  stream->watch_ = admit->clock->Watch(stream);
  if (stream->state_ == State::kEnded)
    return stream.get();  // it ended to make room
  if (place == nullptr) {
    stream->End(ServerIsFull());
  } else {
    stream->place_ = std::move(place);
    stream->StartRead(&stream->incoming_);
  }
  return stream.get();
}

// ---- gRPC's callbacks -------------------------------------------------------

void CorrectStream::OnReadDone(bool ok) {
  // gRPC may be done with the stream before this returns.
  const std::shared_ptr<CorrectStream> self = shared_from_this();
  std::shared_ptr<void> place;  // given back after the lock
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // OnCancel handles a client that left.
    if (state_ == State::kEnded || (!ok && context_->IsCancelled())) return;
    if (state_ == State::kHeader) {
      if (ok) {
        state_ = State::kEntering;
        has_header_ = true;
        place = std::move(place_);
        admit_.executor->Submit(call_.queue_client(), Executor::Length::kShort,
                                [self] { self->Enter(); });
      } else {
        End(call_.InvalidArgument(
            {{"header", "the stream ended before its header"}}));
      }
      return;
    }
    if (!ok) {
      End(call_.InvalidArgument({batch_.Missing()}));
      return;
    }
  }
  // Without the mutex: no second read begins before this one's bytes are
  // copied.
  TakeChunk();
}

void CorrectStream::TakeChunk() {
  const grpc::Status status = call_.Guard([this] { return ReadChunk(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kEnded) return;
  if (!status.ok()) return End(status);
  moved_bytes_ = batch_.received_bytes();
  arrived_rows_ = batch_.rows();
  has_mask_ = batch_.has_mask();
  if (batch_.IsWhole()) {
    BeginComputing();
  } else {
    StartRead(&incoming_);
  }
  BeginWork();
}

grpc::Status CorrectStream::ReadChunk() {
  grpc::Status status =
      frame_.Open(kMaxChunkBytes + kMaxChunkFraming, &incoming_);
  if (!status.ok()) return status;
  Frame frame;
  const std::string wrong = ReadFrame(frame_.pieces(), &frame);
  if (!wrong.empty()) return call_.InvalidArgument({{"frame", wrong}});
  if (frame.kind != Frame::Kind::kChunk) {
    return call_.InvalidArgument(
        {{"frame", "only the first frame is a header"}});
  }
  const Violations violations = batch_.Take(frame.chunk);
  frame_.Clear();
  return violations.empty() ? grpc::Status::OK
                            : call_.InvalidArgument(violations);
}

void CorrectStream::OnWriteDone(bool ok) {
  const std::shared_ptr<CorrectStream> self = shared_from_this();
  const std::lock_guard<std::mutex> lock(mutex_);
  is_writing_ = false;
  if (state_ == State::kEnded) return Finish(end_);
  if (!ok) return End({grpc::StatusCode::CANCELLED, "the client left"});
  if (state_ == State::kSending) SendNext();
}

void CorrectStream::OnCancel() {
  const std::shared_ptr<CorrectStream> self = shared_from_this();
  std::string reset;
  bool is_over = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_header_) reset = context_->peer();
    is_over = state_ == State::kEnded;
    if (!is_over) EndCancelled();
  }
  if (!reset.empty() && admit_.resets != nullptr) {
    admit_.resets->Add(reset, steady_clock::now());
  }
  if (!is_over) admission_wait_.Abandon();
}

void CorrectStream::EndCancelled() {
  grpc::Status status = call_.StillWanted();
  if (status.ok()) {
    status = {grpc::StatusCode::CANCELLED, "the client cancelled the stream"};
  }
  End(status);
}

void CorrectStream::OnDone() {
  // Destroyed after the lock.
  std::shared_ptr<CorrectStream> self;
  std::shared_ptr<void> place;
  std::shared_ptr<void> watch;
  const std::lock_guard<std::mutex> lock(mutex_);
  place = std::move(place_);
  watch = std::move(watch_);
  self = std::move(self_);
}

// ---- Under the mutex --------------------------------------------------------

void CorrectStream::BeginComputing() {
  state_ = State::kComputing;
  call_.EndStage("receive", &RequestRecord::receive_seconds);
  call_.record().request_bytes = header_bytes_ + batch_.received_bytes();
}

void CorrectStream::BeginWork() {
  if (is_working_) return;
  is_working_ = true;
  SubmitWork();
}

void CorrectStream::SubmitWork() {
  admit_.executor->Submit(call_.queue_client(), length_,
                          [self = shared_from_this()] { self->Work(); });
}

void CorrectStream::SendAdmission() {
  v1::CorrectStreamResponse frame;
  frame.mutable_admission()->set_reserved_bytes(
      static_cast<uint64_t>(reservation_->bytes()));
  frame.mutable_admission()->set_chunk_bytes(
      static_cast<uint32_t>(kChunkBytes));
  outgoing_.Clear();
  const grpc::Status status = SerializePayload(frame, &outgoing_);
  if (!status.ok()) return End(status);
  Write();
}

void CorrectStream::SendNext() {
  bool is_over = false;
  const grpc::Status status = answer_.Next(&outgoing_, &is_over);
  if (!status.ok()) return End(status);
  if (!is_over) return Write();
  call_.CountStages();
  report_.metrics->receive_seconds.Observe(call_.record().receive_seconds);
  correction_.Publish(result_);
  End(grpc::Status::OK);
}

void CorrectStream::Write() {
  call_.record().response_bytes += static_cast<int64_t>(outgoing_.Length());
  moved_bytes_ = batch_.received_bytes() + answer_.sent_bytes();
  is_writing_ = true;
  StartWrite(&outgoing_);
}

void CorrectStream::End(const grpc::Status& status) {
  state_ = State::kEnded;
  has_ended_ = true;
  end_ = status;
  AddErrorTrailers(status, context_);
  // Otherwise the write's end does it.
  if (!is_writing_) Finish(status);
  // Work that waits sees that it is over.
  resumer_.Wake();
}

void CorrectStream::EndFromTask(const grpc::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != State::kEnded) End(status);
}

// ---- Time -------------------------------------------------------------------

void CorrectStream::GiveWay() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kHeader) End(ServerIsFull());
}

double CorrectStream::OwedBytes(double seconds) const {
  double rate =
      static_cast<double>(admit_.config->Get()->min_stream_bytes_per_second);
  rate = std::max(
      rate, static_cast<double>(reserved_bytes_) / kLongestTransferSeconds);
  return rate * seconds;
}

void CorrectStream::OnTick(steady_clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (watch_ == nullptr) return;  // gRPC is done with the stream
  if (std::exchange(timed_state_, state_) != state_) {
    state_since_ = window_since_ = now;
    window_moved_ = moved_bytes_;
    return;
  }
  // Time in the queue and while computing is ours, not the client's.
  if (state_ == State::kEntering || state_ == State::kComputing) return;
  const auto seconds_since = [now](steady_clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  const double window = seconds_since(window_since_);
  bool is_slow = false;
  if (window >= admit_.config->Get()->stream_timeout_s) {
    is_slow =
        static_cast<double>(moved_bytes_ - window_moved_) < OwedBytes(window);
    window_since_ = now;
    window_moved_ = moved_bytes_;
  }
  if (state_ == State::kSending || state_ == State::kEnded) {
    // A client that does not read cannot receive an error either.
    if (is_slow) context_->TryCancel();
    return;
  }
  if (is_slow) {
    return End({grpc::StatusCode::DEADLINE_EXCEEDED,
                "the stream moved less than --min_stream_bytes_per_second, or "
                "than a sixtieth of its reserved bytes per second, over "
                "--stream_timeout"});
  }
  if (state_ != State::kReceiving) return;
  const double age = seconds_since(state_since_);
  const Admission& admission = *admit_.admission;
  const bool owes_others = age >= kGraceSeconds &&
                           static_cast<double>(moved_bytes_) < OwedBytes(age) &&
                           admission.IsCrowdingOut(call_.queue_client().peer);
  const bool is_silent = age >= kSilenceSeconds && moved_bytes_ == 0 &&
                         admission.requests_queued() > 0;
  if (owes_others || is_silent) {
    End(TryAgain(grpc::StatusCode::RESOURCE_EXHAUSTED,
                 "the stream moved less than it owes while others waited for "
                 "the memory that it reserved; try again",
                 kRetryAfterGivingWaySeconds));
  }
}

}  // namespace counterweight::server
