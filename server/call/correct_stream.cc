#include "server/call/correct_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/wire_format.h"
#include "server/call/status.h"
#include "server/engine/codec_memory.h"
#include "server/engine/correction_run.h"
#include "server/engine/frame.h"
#include "server/engine/request_scan.h"

namespace counterweight::server {

using std::chrono::steady_clock;

namespace {

// A header has no payload: the structure, and of each sequence at most its
// length and its group id, each with a tag.
constexpr int64_t kMaxHeaderBytesPerSequence = 2 * (1 + wire::kMaxVarintBytes);
// A span has a tag and a length in front of its numbers.
constexpr int64_t kMaxSpanBytes =
    2 + kVersionSpanFields * (1 + wire::kMaxVarintBytes);

// A stream is to move all that it reserved in this time.
constexpr double kLongestTransferSeconds = 60.0;
// Silence that is forgiven after the admission while others wait: a round trip
// and the client's first chunk.
constexpr double kGraceSeconds = 0.25;
// The same towards requests of its own peer.
constexpr double kSilenceSeconds = 1.0;
constexpr double kRetryAfterGivingWaySeconds = 1.0;

// Keeps staging memory alive while gRPC has slices of it.
struct Hold {
  std::shared_ptr<Share> share;
  std::shared_ptr<std::byte> memory;
};

}  // namespace

CorrectStream::CorrectStream(const ServiceContext* service,
                             std::string_view rpc,
                             grpc::CallbackServerContext* context,
                             std::string request_id, std::shared_ptr<void> use)
    : use_(std::move(use)),
      service_(*service),
      context_(context),
      state_since_(steady_clock::now()),
      window_since_(state_since_),
      call_(service, rpc, context, std::move(request_id)),
      correction_(&call_) {}

CorrectStream::~CorrectStream() { call_.Record(end_); }

CorrectStream* CorrectStream::Start(const ServiceContext* service,
                                    std::string_view rpc,
                                    grpc::CallbackServerContext* context,
                                    std::string request_id,
                                    std::shared_ptr<void> use) {
  const std::shared_ptr<CorrectStream> stream(new CorrectStream(
      service, rpc, context, std::move(request_id), std::move(use)));
  stream->self_ = stream;
  std::shared_ptr<void> place = service->arrivals->Enter(
      stream->call_.queue_client().peer, stream->state_since_,
      [weak = std::weak_ptr<CorrectStream>(stream)] {
        if (const auto self = weak.lock()) self->GiveWay();
      });
  const std::lock_guard<std::mutex> lock(stream->mutex_);
  stream->watch_ = service->clock->Watch(stream);
  if (stream->state_ == State::kEnded) return stream.get();  // it gave way
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
        place = std::move(place_);
        service_.executor->Submit(call_.queue_client().peer,
                                  Executor::Length::kShort,
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
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == State::kEnded) return;
    grpc::Status status = call_.StillWanted();
    if (status.ok()) {
      status = {grpc::StatusCode::CANCELLED, "the client cancelled the stream"};
    }
    End(status);
  }
  entry_.Abandon();
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

// ---- The executor's tasks ---------------------------------------------------

void CorrectStream::Enter() {
  const grpc::Status status = call_.Guard([this] { return ReadHeader(); });
  call_.EndStage("decode", &RequestRecord::decode_seconds);
  if (!status.ok()) return EndFromTask(status);
  // A client that left while the header was read needs no turn.
  if (has_ended_) return;
  const Entry::Request request{.client = call_.queue_client(),
                               .bytes = NeededBytes(),
                               .held_bytes = correction_.ObjectBytes()};
  entry_.Begin(&service_, request,
               [self = shared_from_this()](Admission::Verdict verdict,
                                           std::shared_ptr<Share> share) {
                 self->Decided(verdict, std::move(share));
               });
}

grpc::Status CorrectStream::ReadHeader() {
  grpc::Status status = frame_.Open(
      kMaxStructureBytes + kMaxVersionSpans * kMaxSpanBytes +
          kMaxHeaderBytesPerSequence * service_.config->Get()->max_sequences,
      &incoming_);
  if (!status.ok()) return status;
  header_bytes_ = static_cast<int64_t>(frame_.size());
  Frame frame;
  std::string wrong = ReadFrame(frame_.pieces(), &frame);
  if (wrong.empty() && frame.kind != Frame::Kind::kHeader) {
    wrong = "the first frame must be the header";
  }
  if (!wrong.empty()) return call_.InvalidArgument({{"frame", wrong}});
  const std::string header = frame.header.Rest();
  frame_.Clear();
  google::protobuf::io::ArrayInputStream input(header.data(),
                                               static_cast<int>(header.size()));
  status = correction_.Parse(&input, /*has_data=*/false);
  if (!status.ok()) return status;
  // Not StillWanted: the context is gone when the stream has ended.
  return correction_.Decode({.is_stream = true}, [this] {
    return has_ended_ ? grpc::Status::CANCELLED : grpc::Status::OK;
  });
}

int64_t CorrectStream::NeededBytes() const {
  const Decoded& decoded = correction_.decoded();
  return correction_.ObjectBytes() + InputBytes(decoded.tensors) +
         OutputBytes(decoded.outputs, decoded.layout) +
         service_.corrector->ScratchBytes(decoded.method.spec,
                                          BatchOf(decoded));
}

void CorrectStream::Decided(Admission::Verdict verdict,
                            std::shared_ptr<Share> share) {
  if (share == nullptr) return EndFromTask(call_.Refuse(verdict));
  share_ = std::move(share);
  const grpc::Status status = call_.Guard([this] { return Prepare(); });
  call_.EndStage("queue", &RequestRecord::queue_seconds);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kEnded) return;
  if (!status.ok()) return End(status);
  state_ = State::kReceiving;
  reserved_bytes_ = share_->bytes();
  SendAdmission();
  if (batch_.IsWhole()) {
    BeginComputing();
    BeginWork();
  } else {
    StartRead(&incoming_);
  }
}

grpc::Status CorrectStream::Prepare() {
  const Decoded& decoded = correction_.decoded();
  const int64_t input_bytes = InputBytes(decoded.tensors);
  memory_ = service_.staging->Take(
      input_bytes + OutputBytes(decoded.outputs, decoded.layout));
  if (memory_ == nullptr) return call_.NoMemory();
  PlacedInputs inputs = PlaceInputs(memory_.get(), decoded);
  batch_ = StreamBatch(std::move(inputs.tensors), decoded.layout.offsets);
  std::byte* next = memory_.get() + input_bytes;
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.outputs, decoded.layout,
      [&](v1::Tensor*, int64_t bytes) {
        answer_.AddOutput(next, bytes);
        return std::exchange(next, next + Aligned(bytes));
      },
      &correction_.response());
  run_ = BeginCorrection(service_.corrector, decoded, inputs.batch,
                         inputs.versions, outputs,
                         [this] { return has_ended_.load(); });
  return grpc::Status::OK;
}

void CorrectStream::Work() {
  for (;;) {
    int64_t rows = 0;
    bool has_mask = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const bool has_news =
          arrived_rows_ != advanced_rows_ || has_mask_ != advanced_mask_;
      if (state_ != State::kComputing &&
          (state_ != State::kReceiving || !has_news)) {
        is_working_ = false;
        return;
      }
      if (state_ == State::kComputing) break;
      rows = advanced_rows_ = arrived_rows_;
      has_mask = advanced_mask_ = has_mask_;
    }
    const grpc::Status status = call_.Guard([&] {
      run_->Advance(rows, has_mask);
      return grpc::Status::OK;
    });
    if (!status.ok()) return EndFromTask(status);
  }
  bool waits = false;
  grpc::Status status;
  do {
    status = call_.Guard([&] { return FinishComputing(&waits); });
    if (status.ok() && waits && IsParked()) return;
  } while (status.ok() && waits && !has_ended_);
  const std::lock_guard<std::mutex> lock(mutex_);
  is_working_ = false;
  if (state_ == State::kEnded) return;
  if (!status.ok()) return End(status);
  state_ = State::kSending;
  if (!is_writing_) SendNext();
}

bool CorrectStream::IsParked() {
  return parking_.Park([self = shared_from_this()] { self->SubmitWork(); });
}

grpc::Status CorrectStream::FinishComputing(bool* waits) {
  const kernels::Turn turn = run_->TakeTurn([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->parking_.Wake();
  });
  *waits = turn == kernels::Turn::kLater;
  if (*waits) return grpc::Status::OK;
  const kernels::CorrectResult result = run_->Finish();
  call_.EndStage("compute", &RequestRecord::compute_seconds);
  // The stream has ended; this status is not read.
  if (result.status == kernels::CorrectStatus::kStopped) {
    return grpc::Status::CANCELLED;
  }
  grpc::Status status = correction_.Judge(result);
  if (!status.ok()) return status;
  sums_ = result.sums;
  status = correction_.Encode(sums_);
  call_.EndStage("encode", &RequestRecord::encode_seconds);
  if (!status.ok()) return status;
  v1::StreamSummary summary;
  summary.set_received_bytes(static_cast<uint64_t>(batch_.received_bytes()));
  *summary.mutable_timing() = correction_.response().timing();
  answer_.Begin(std::make_shared<Hold>(Hold{share_, memory_}),
                &correction_.response(), summary);
  return grpc::Status::OK;
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
  service_.executor->Submit(call_.queue_client().peer,
                            Executor::LengthOf(reserved_bytes_),
                            [self = shared_from_this()] { self->Work(); });
}

void CorrectStream::SendAdmission() {
  v1::CorrectStreamResponse frame;
  frame.mutable_admission()->set_reserved_bytes(
      static_cast<uint64_t>(share_->bytes()));
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
  service_.metrics->receive_seconds.Observe(call_.record().receive_seconds);
  correction_.Publish(sums_);
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
  // Otherwise the write's end tells.
  if (!is_writing_) Finish(status);
  // Work that is parked sees that it is over.
  parking_.Wake();
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
      static_cast<double>(service_.config->Get()->min_stream_bytes_per_second);
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
  if (window >= service_.config->Get()->stream_timeout_s) {
    is_slow =
        static_cast<double>(moved_bytes_ - window_moved_) < OwedBytes(window);
    window_since_ = now;
    window_moved_ = moved_bytes_;
  }
  if (state_ == State::kSending || state_ == State::kEnded) {
    // A client that does not read cannot be told either.
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
  const Admission& admission = *service_.admission;
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
