#include "client/cpp/transport/stream_call.h"

#include <optional>
#include <string>
#include <vector>

#include "client/cpp/transport/answer.h"
#include "client/cpp/transport/blocking_call.h"
#include "client/cpp/transport/message.h"
#include "client/cpp/transport/stream_frame.h"
#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/chunk.h"

namespace counterweight::client {
namespace {

using grpc::ByteBuffer;

// For servers that name no chunk size.
constexpr size_t kDefaultChunkBytes = size_t{2} << 20;

// One stream, from the header to the status. Methods return false when the
// stream has ended or must end (`broken_` has the reason).
class Stream {
 public:
  Stream(const PreparedRequest& request, const Progress& progress,
         Attempt* attempt, BlockingStream* stream, Response* response)
      : request_(request),
        progress_(progress),
        attempt_(attempt),
        stream_(stream),
        response_(response) {}

  Outcome Run(size_t chunk_bytes) {
    const bool complete = SendHeader() && ReadAdmission(&chunk_bytes) &&
                          SendChunks(chunk_bytes) && ReadResult() &&
                          ReadChunks();
    // The status does not arrive before every message is read.
    if (broken_.ok() && ReadAnyFrame()) {
      broken_ = BrokenAnswer(complete ? "it goes on after the summary"
                                      : "it comes before the last chunk");
    }
    // A server that keeps sending must not block us.
    if (!broken_.ok()) attempt_->context()->TryCancel();
    Outcome outcome = attempt_->End(stream_->Finish());
    outcome.admitted = admitted_;
    if (!broken_.ok()) {
      outcome.status = broken_;
    } else if (outcome.status.ok() && !complete) {
      outcome.status = BrokenAnswer("it ends early");
    }
    return outcome;
  }

 private:
  bool SendHeader() {
    v1::CorrectRequest header = request_.header;
    for (const Input& input : request_.inputs) {
      v1::Tensor* const tensor = header.add_tensors();
      tensor->set_role(input.role);
      tensor->set_dtype(input.dtype);
    }
    const std::string message = header.SerializeAsString();
    std::string frame;
    wire::AppendHead(v1::CorrectStreamRequest::kHeaderFieldNumber,
                     message.size(), &frame);
    frame += message;
    const grpc::Slice slice(frame.data(), frame.size());
    return stream_->Write(ByteBuffer(&slice, 1));
  }

  bool ReadAdmission(size_t* chunk_bytes) {
    if (!ReadFrame(v1::CorrectStreamResponse::kAdmissionFieldNumber,
                   "the admission"))
      return false;
    admitted_ = true;
    v1::Admission admission;
    if (!Parse(&admission)) return false;
    if (*chunk_bytes == 0) *chunk_bytes = admission.chunk_bytes();
    if (*chunk_bytes == 0) *chunk_bytes = kDefaultChunkBytes;
    return true;
  }

  bool SendChunks(size_t chunk_bytes) {
    ChunkOrder order(request_.Chunked(), chunk_bytes);
    ChunkRange range;
    size_t sent = 0;
    while (order.Next(&range)) {
      const std::string head =
          wire::ChunkHead(v1::CorrectStreamRequest::kChunkFieldNumber,
                          range.tensor, range.offset, range.size);
      const auto* const data =
          static_cast<const std::byte*>(request_.inputs[range.tensor].data);
      const grpc::Slice slices[] = {
          grpc::Slice(head.data(), head.size()),
          attempt_->Lend(data + range.offset, range.size)};
      if (!stream_->Write(ByteBuffer(slices, 2))) return false;
      sent += range.size;
      if (progress_ != nullptr && sent < request_.input_bytes) {
        progress_(sent, request_.input_bytes);
      }
    }
    return stream_->WritesDone();
  }

  bool ReadResult() {
    if (!ReadFrame(v1::CorrectStreamResponse::kResultFieldNumber,
                   "the result") ||
        !Parse(&response_->message)) {
      return false;
    }
    broken_ = PlaceOutputs(request_, response_);
    return broken_.ok();
  }

  // Reads all chunks and the summary.
  bool ReadChunks() {
    for (uint32_t i = 0; i < response_->outputs.size(); ++i) {
      const OutputTensor& output = response_->outputs[i];
      for (size_t received = 0; received < output.bytes;) {
        if (!ReadFrame(v1::CorrectStreamResponse::kChunkFieldNumber, "a chunk"))
          return false;
        wire::WireReader& data = frame_.chunk.data;
        const size_t size = data.left();
        if (frame_.chunk.tensor != i || frame_.chunk.offset != received ||
            size == 0 || size > output.bytes - received ||
            !data.Copy(size, output.data + received)) {
          broken_ = BrokenAnswer("a chunk does not continue its tensor");
          return false;
        }
        received += size;
      }
    }
    v1::StreamSummary summary;
    if (!ReadFrame(v1::CorrectStreamResponse::kSummaryFieldNumber,
                   "the summary") ||
        !Parse(&summary)) {
      return false;
    }
    // Measured later than the result's, and therefore complete.
    if (summary.has_timing()) {
      *response_->message.mutable_timing() = summary.timing();
    }
    return true;
  }

  // Reads the next frame that this library knows, or one that does not parse.
  bool ReadAnyFrame() {
    for (;;) {
      message_.reset();
      ByteBuffer buffer;
      if (!stream_->Read(&buffer)) return false;
      message_.emplace(buffer);
      readable_ = ReadStreamFrame(message_->reader(),
                                  v1::CorrectStreamResponse::kChunkFieldNumber,
                                  &frame_);
      if (!readable_ || frame_.field != 0) return true;
    }
  }

  // Reads the next frame and checks that it is this one.
  bool ReadFrame(int field, const char* what) {
    if (!ReadAnyFrame()) return false;
    if (!readable_ || frame_.field != field) {
      broken_ = BrokenAnswer(std::string(what) + " was to come");
      return false;
    }
    return true;
  }

  bool Parse(google::protobuf::MessageLite* message) {
    if (message->ParseFromString(frame_.content.Rest())) return true;
    broken_ = BrokenAnswer("its bytes do not parse");
    return false;
  }

  const PreparedRequest& request_;
  const Progress& progress_;
  Attempt* const attempt_;
  BlockingStream* const stream_;
  Response* const response_;
  // Owns the memory of frame_.
  std::optional<Message> message_;
  StreamFrame frame_;
  bool readable_ = false;
  bool admitted_ = false;
  Status broken_;
};

}  // namespace

Outcome CorrectStream(const Endpoint& endpoint, const PreparedRequest& request,
                      size_t chunk_bytes, const Progress& progress,
                      Attempt* attempt, Response* response) {
  const std::string path = "/" + endpoint.service + "/CorrectStream";
  BlockingStream stream(endpoint.channel, path, attempt->context());
  return Stream(request, progress, attempt, &stream, response).Run(chunk_bytes);
}

}  // namespace counterweight::client
