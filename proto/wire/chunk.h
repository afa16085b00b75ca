// The contract's Chunk, read and written around its data.
#ifndef COUNTERWEIGHT_PROTO_WIRE_CHUNK_H_
#define COUNTERWEIGHT_PROTO_WIRE_CHUNK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/wire_format.h"
#include "proto/wire/wire_reader.h"

namespace counterweight::wire {

struct Chunk {
  uint32_t tensor = 0;
  uint64_t offset = 0;
  WireReader data;
};

// Reads a whole Chunk. False if the bytes are none.
inline bool ReadChunk(WireReader message, Chunk* chunk) {
  *chunk = {};
  while (!message.done()) {
    int field = 0;
    uint32_t type = 0;
    uint64_t value = 0;
    if (!message.ReadTag(&field, &type)) return false;
    if (field == v1::Chunk::kTensorFieldNumber && type == kVarint) {
      if (!message.ReadVarint(&value)) return false;
      chunk->tensor = static_cast<uint32_t>(value);
    } else if (field == v1::Chunk::kOffsetFieldNumber && type == kVarint) {
      if (!message.ReadVarint(&chunk->offset)) return false;
    } else if (field == v1::Chunk::kDataFieldNumber &&
               type == kLengthDelimited) {
      if (!message.ReadBytes(&chunk->data)) return false;
    } else if (!message.SkipField(type)) {
      return false;
    }
  }
  return true;
}

// Returns the head of a frame that carries a Chunk in its field `frame_field`:
// everything that precedes the `size` bytes of data.
inline std::string ChunkHead(int frame_field, uint32_t tensor, uint64_t offset,
                             size_t size) {
  std::string chunk;
  AppendInteger(v1::Chunk::kTensorFieldNumber, tensor, &chunk);
  AppendInteger(v1::Chunk::kOffsetFieldNumber, offset, &chunk);
  AppendHead(v1::Chunk::kDataFieldNumber, size, &chunk);
  return Wrap(frame_field, chunk, size);
}

}  // namespace counterweight::wire

#endif  // COUNTERWEIGHT_PROTO_WIRE_CHUNK_H_
