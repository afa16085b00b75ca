#include "client/cpp/transport/stream_frame.h"

#include "client/cpp/transport/wire_format.h"

namespace counterweight::client {
namespace {

bool ReadChunk(WireReader chunk, StreamFrame* frame) {
  frame->payload = {};
  while (!chunk.done()) {
    uint32_t field = 0;
    uint32_t type = 0;
    uint64_t value = 0;
    if (!chunk.ReadTag(&field, &type)) return false;
    if (field == kChunkTensor && type == kVarint) {
      if (!chunk.ReadVarint(&value)) return false;
      frame->tensor = static_cast<uint32_t>(value);
    } else if (field == kChunkOffset && type == kVarint) {
      if (!chunk.ReadVarint(&frame->offset)) return false;
    } else if (field == kChunkData && type == kLengthDelimited) {
      if (!chunk.ReadBytes(&frame->payload)) return false;
    } else if (!chunk.SkipField(type)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool ReadStreamFrame(WireReader message, uint32_t chunk_field,
                     StreamFrame* frame) {
  *frame = {};
  while (!message.done()) {
    uint32_t field = 0;
    uint32_t type = 0;
    if (!message.ReadTag(&field, &type)) return false;
    if (type != kLengthDelimited) {
      if (!message.SkipField(type)) return false;
      continue;
    }
    WireReader bytes;
    if (!message.ReadBytes(&bytes)) return false;
    // A newer contract may have other frames, and other fields beside them.
    if (field > kStreamResponseSummary) continue;
    frame->field = field;
    frame->payload = bytes;
    if (field == chunk_field && !ReadChunk(bytes, frame)) return false;
  }
  return true;
}

}  // namespace counterweight::client
