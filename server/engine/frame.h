// Frames of the upward stream, read by hand: tags and lengths from the bytes as
// gRPC has them, so that a payload is copied once, to where it stays.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_FRAME_H_
#define COUNTERWEIGHT_SERVER_ENGINE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace counterweight::server {

// One message in pieces, in order; empty pieces are allowed.
using Pieces = std::span<const std::span<const uint8_t>>;

// Bytes [begin, begin + size) of a message.
struct ByteRange {
  size_t begin = 0;
  size_t size = 0;
};

// A CorrectStreamRequest, its payload left where it lies.
struct Frame {
  enum class Kind : uint8_t { kHeader, kChunk };
  Kind kind = Kind::kHeader;
  // kHeader: the CorrectRequest. kChunk: Chunk.data.
  ByteRange payload;
  // kChunk: its tensor and offset.
  uint32_t tensor = 0;
  uint64_t offset = 0;
};

// Reads one frame of proto3's wire format: fields in any order, the last of a
// scalar's occurrences counts, unknown fields are skipped, groups refused.
// Returns an error sentence for bytes that are no message, or do not hold
// exactly one of header and chunk, once; else an empty string.
std::string ReadFrame(Pieces message, Frame* frame);

// Copies bytes of a message. REQUIRES: the range is inside the message.
void CopyRange(Pieces message, ByteRange range, void* to);

// The head of a CorrectStreamResponse that carries a chunk: everything but the
// data, which is to follow.
std::string ChunkHead(uint32_t tensor, uint64_t offset, size_t data_size);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_FRAME_H_
