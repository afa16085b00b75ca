#include "server/engine/frame.h"

#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::server {

std::string ReadFrame(wire::Pieces message, Frame* frame) {
  constexpr char kNoMessage[] =
      "the frame is not a CorrectStreamRequest: its bytes do not parse";
  constexpr char kNotOne[] =
      "a frame must hold exactly one header or one chunk";
  *frame = {};
  wire::WireReader reader(message);
  wire::WireReader content;
  bool has_one = false;
  while (!reader.done()) {
    int field = 0;
    uint32_t type = 0;
    if (!reader.ReadTag(&field, &type)) return kNoMessage;
    const bool is_chunk = field == v1::CorrectStreamRequest::kChunkFieldNumber;
    if (type != wire::kLengthDelimited ||
        (field != v1::CorrectStreamRequest::kHeaderFieldNumber && !is_chunk)) {
      if (!reader.SkipField(type)) return kNoMessage;
      continue;
    }
    // At once: reading on would take time that a client decides.
    if (has_one) return kNotOne;
    has_one = true;
    if (is_chunk) frame->kind = Frame::Kind::kChunk;
    if (!reader.ReadBytes(&content)) return kNoMessage;
  }
  if (!has_one) return kNotOne;
  if (frame->kind == Frame::Kind::kChunk) {
    return wire::ReadChunk(content, &frame->chunk) ? "" : kNoMessage;
  }
  frame->header = content;
  return "";
}

}  // namespace counterweight::server
