// A message of CorrectStream.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_FRAME_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_FRAME_H_

#include <cstdint>

#include "client/cpp/transport/wire_reader.h"

namespace counterweight::client {

struct StreamFrame {
  // The oneof's field (kStreamRequest..., kStreamResponse...); 0 for fields
  // that this library does not know.
  uint32_t field = 0;
  // A chunk's data, or the field's message.
  WireReader payload;
  // Index and offset of a chunk.
  uint32_t tensor = 0;
  uint64_t offset = 0;
};

// Reads one frame whose chunks are in field `chunk_field`. False if the bytes
// are not a message.
bool ReadStreamFrame(WireReader message, uint32_t chunk_field,
                     StreamFrame* frame);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_FRAME_H_
