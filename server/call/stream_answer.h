// The frames of one answer: the result, its chunks, the summary.
#ifndef COUNTERWEIGHT_SERVER_CALL_STREAM_ANSWER_H_
#define COUNTERWEIGHT_SERVER_CALL_STREAM_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace counterweight::server {

// Size of one chunk: the fastest measured, and with its frame below the 4 MiB
// that gRPC's clients accept by default.
inline constexpr int64_t kChunkBytes = int64_t{2} << 20;

// Makes the frames one after the other. Used by one thread at a time.
class StreamAnswer {
 public:
  // The next output, in the order of the result's tensors.
  void AddOutput(const std::byte* data, int64_t bytes);

  // Takes `result`, its tensors without data. `memory` keeps the outputs: gRPC
  // reads them itself, perhaps after this is gone.
  void Begin(std::shared_ptr<void> memory, v1::CorrectResponse* result,
             const v1::StreamSummary& summary);

  // The next frame; *is_over: there is none. REQUIRES: after Begin.
  grpc::Status Next(grpc::ByteBuffer* frame, bool* is_over);

  // Bytes of the chunks made so far.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  enum class Part : uint8_t { kResult, kChunks, kSummary };
  struct Output {
    const std::byte* data;
    int64_t bytes;
  };

  grpc::ByteBuffer NextChunk();

  std::vector<Output> outputs_;
  std::shared_ptr<void> memory_;
  v1::CorrectResponse result_;
  v1::StreamSummary summary_;
  Part part_ = Part::kResult;
  size_t output_ = 0;  // to be sent next, from offset_
  int64_t offset_ = 0;
  int64_t sent_bytes_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_STREAM_ANSWER_H_
