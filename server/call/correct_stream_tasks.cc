// The tasks of a CorrectStream that run on the executor.
#include <utility>

#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/wire_format.h"
#include "server/call/correct_stream.h"
#include "server/call/status.h"
#include "server/engine/codec_memory.h"
#include "server/engine/correction_run.h"
#include "server/engine/frame.h"
#include "server/engine/request_scan.h"

namespace counterweight::server {
namespace {

// A header has no payload: the structure, and of each sequence at most its
// length and its group id, each with a tag.
constexpr int64_t kMaxHeaderBytesPerSequence = 2 * (1 + wire::kMaxVarintBytes);
// A span has a tag and a length in front of its numbers.
constexpr int64_t kMaxSpanBytes =
    2 + kVersionSpanFields * (1 + wire::kMaxVarintBytes);

// Keeps staging memory alive while gRPC has slices of it.
struct Hold {
  std::shared_ptr<Reservation> reservation;
  std::shared_ptr<std::byte> memory;
};

}  // namespace

void CorrectStream::Enter() {
  const grpc::Status status = call_.Guard([this] { return ReadHeader(); });
  call_.EndStage("decode", &RequestRecord::decode_seconds);
  if (!status.ok()) return EndFromTask(status);
  // A client that left while the header was read needs no turn.
  if (has_ended_) return;
  const AdmissionWait::Request request{.client = call_.queue_client(),
                                       .bytes = NeededBytes(),
                                       .held_bytes = correction_.ObjectBytes()};
  admission_wait_.Begin(
      &admit_, request,
      [self = shared_from_this()](Admission::Verdict verdict,
                                  std::shared_ptr<Reservation> reservation) {
        self->Decided(verdict, std::move(reservation));
      });
}

grpc::Status CorrectStream::ReadHeader() {
  grpc::Status status = frame_.Open(
      kMaxStructureBytes + kMaxVersionSpans * kMaxSpanBytes +
          kMaxHeaderBytesPerSequence * admit_.config->Get()->max_sequences,
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
         compute_.corrector->ScratchBytes(decoded.method.spec,
                                          BatchOf(decoded));
}

void CorrectStream::Decided(Admission::Verdict verdict,
                            std::shared_ptr<Reservation> reservation) {
  if (reservation == nullptr) return EndFromTask(call_.Refuse(verdict));
  reservation_ = std::move(reservation);
  const grpc::Status status = call_.Guard([this] { return Prepare(); });
  call_.EndStage("queue", &RequestRecord::queue_seconds);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kEnded) return;
  if (!status.ok()) return End(status);
  state_ = State::kReceiving;
  reserved_bytes_ = reservation_->bytes();
  length_ = Executor::LengthOf(reserved_bytes_, call_.record().sequences);
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
  memory_ = compute_.staging->Take(
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
  inputs_ = inputs.batch;
  run_ = BeginCorrection(compute_.corrector, decoded, inputs.batch,
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
    if (status.ok() && waits && MustWait()) return;
  } while (status.ok() && waits && !has_ended_);
  const std::lock_guard<std::mutex> lock(mutex_);
  is_working_ = false;
  if (state_ == State::kEnded) return;
  if (!status.ok()) return End(status);
  state_ = State::kSending;
  if (!is_writing_) SendNext();
}

bool CorrectStream::MustWait() {
  return resumer_.Wait([self = shared_from_this()] { self->SubmitWork(); });
}

grpc::Status CorrectStream::FinishComputing(bool* waits) {
  const kernels::Turn turn = run_->TakeTurn([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->resumer_.Wake();
  });
  *waits = turn == kernels::Turn::kLater;
  if (*waits) return grpc::Status::OK;
  result_ = run_->Finish();
  call_.EndStage("compute", &RequestRecord::compute_seconds);
  // The stream has ended; this status is not read.
  if (result_.status == kernels::CorrectStatus::kStopped) {
    return grpc::Status::CANCELLED;
  }
  grpc::Status status = correction_.Judge(result_);
  if (!status.ok()) return status;
  // Where there is no room for it, the batch is answered all the same.
  const Layout& layout = correction_.decoded().layout;
  if (correction_.WantsCalmWeights() &&
      reservation_->Grow(
          ExaminationBytes(layout.num_sequences, layout.num_positions)) ==
          Admission::Verdict::kAdmitted) {
    correction_.CountCalmWeights(inputs_);
  }
  status = correction_.Encode(result_);
  call_.EndStage("encode", &RequestRecord::encode_seconds);
  if (!status.ok()) return status;
  v1::StreamSummary summary;
  summary.set_received_bytes(static_cast<uint64_t>(batch_.received_bytes()));
  *summary.mutable_timing() = correction_.response().timing();
  answer_.Begin(std::make_shared<Hold>(Hold{reservation_, memory_}),
                &correction_.response(), summary);
  return grpc::Status::OK;
}

}  // namespace counterweight::server
