#include "client/cpp/transport/stream_frame.h"

#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/wire_format.h"

namespace counterweight::client {

bool ReadStreamFrame(wire::WireReader message, int chunk_field,
                     StreamFrame* frame) {
  *frame = {};
  while (!message.done()) {
    int field = 0;
    uint32_t type = 0;
    if (!message.ReadTag(&field, &type)) return false;
    if (type != wire::kLengthDelimited) {
      if (!message.SkipField(type)) return false;
      continue;
    }
    wire::WireReader bytes;
    if (!message.ReadBytes(&bytes)) return false;
    // A newer contract may have other frames, and other fields beside them.
    if (field > v1::CorrectStreamResponse::kSummaryFieldNumber) continue;
    frame->field = field;
    frame->content = bytes;
    if (field == chunk_field && !wire::ReadChunk(bytes, &frame->chunk))
      return false;
  }
  return true;
}

}  // namespace counterweight::client
