// Frames of the upward stream: tags and lengths from the bytes as gRPC has
// them, so that a payload is copied once, to where it stays.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_FRAME_H_
#define COUNTERWEIGHT_SERVER_ENGINE_FRAME_H_

#include <cstdint>
#include <string>

#include "proto/wire/chunk.h"
#include "proto/wire/wire_reader.h"

namespace counterweight::server {

// A CorrectStreamRequest, its header or its chunk's data left where it lies.
struct Frame {
  enum class Kind : uint8_t { kHeader, kChunk };
  Kind kind = Kind::kHeader;
  wire::WireReader header;  // the CorrectRequest
  wire::Chunk chunk;
};

// Reads one frame of proto3's wire format: fields in any order, the last of a
// scalar's occurrences counts, unknown fields are skipped, groups refused.
// Returns an error sentence for bytes that are no message, or do not hold
// exactly one of header and chunk, once; else an empty string. The frame refers
// to the pieces.
std::string ReadFrame(wire::Pieces message, Frame* frame);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_FRAME_H_
