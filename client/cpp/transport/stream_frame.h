// A message of CorrectStream.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_FRAME_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_FRAME_H_

#include <cstdint>

#include "proto/wire/chunk.h"
#include "proto/wire/wire_reader.h"

namespace counterweight::client {

struct StreamFrame {
  // The number of the oneof's field; 0 for fields that this library does not
  // know.
  int field = 0;
  wire::WireReader content;  // the field's message
  wire::Chunk chunk;         // if the field is a chunk
};

// Reads one frame with chunks in field `chunk_field`. False if the bytes are
// not a message.
bool ReadStreamFrame(wire::WireReader message, int chunk_field,
                     StreamFrame* frame);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_STREAM_FRAME_H_
