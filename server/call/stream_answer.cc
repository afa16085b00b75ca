#include "server/call/stream_answer.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "grpcpp/support/slice.h"
#include "proto/wire/chunk.h"
#include "server/call/payload.h"

namespace counterweight::server {

void StreamAnswer::AddOutput(const std::byte* data, int64_t bytes) {
  outputs_.push_back({data, bytes});
}

void StreamAnswer::Begin(std::shared_ptr<void> memory,
                         v1::CorrectResponse* result,
                         const v1::StreamSummary& summary) {
  memory_ = std::move(memory);
  result_.Swap(result);
  summary_ = summary;
}

grpc::Status StreamAnswer::Next(grpc::ByteBuffer* frame, bool* is_over) {
  frame->Clear();
  *is_over = false;
  v1::CorrectStreamResponse message;
  if (part_ == Part::kResult) {
    part_ = Part::kChunks;
    message.mutable_result()->Swap(&result_);
    return SerializePayload(message, frame);
  }
  while (output_ < outputs_.size() && offset_ == outputs_[output_].bytes) {
    ++output_;
    offset_ = 0;
  }
  if (output_ < outputs_.size()) {
    *frame = NextChunk();
    return grpc::Status::OK;
  }
  *is_over = part_ == Part::kSummary;
  if (*is_over) return grpc::Status::OK;
  part_ = Part::kSummary;
  summary_.set_sent_bytes(static_cast<uint64_t>(sent_bytes_));
  message.mutable_summary()->Swap(&summary_);
  return SerializePayload(message, frame);
}

grpc::ByteBuffer StreamAnswer::NextChunk() {
  const Output& output = outputs_[output_];
  const int64_t size = std::min(kChunkBytes, output.bytes - offset_);
  const std::string head = wire::ChunkHead(
      v1::CorrectStreamResponse::kChunkFieldNumber,
      static_cast<uint32_t>(output_), static_cast<uint64_t>(offset_),
      static_cast<size_t>(size));
  auto* const hold = new std::shared_ptr<void>(memory_);
  const grpc::Slice slices[] = {
      grpc::Slice(head),
      grpc::Slice(
          const_cast<std::byte*>(output.data + offset_),
          static_cast<size_t>(size),
          [](void* held) { delete static_cast<std::shared_ptr<void>*>(held); },
          hold)};
  offset_ += size;
  sent_bytes_ += size;
  return {slices, std::size(slices)};
}

}  // namespace counterweight::server
