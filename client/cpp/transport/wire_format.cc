#include "client/cpp/transport/wire_format.h"

namespace counterweight::client {
namespace {

constexpr uint32_t kWireTypeBits = 3;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

void AppendTag(uint32_t field, uint32_t type, std::string* out) {
  AppendVarint(field << kWireTypeBits | type, out);
}

// Frames `inner` and `size` more bytes as a message in field `field`.
std::string Wrap(uint32_t field, const std::string& inner, size_t size) {
  std::string head;
  AppendHead(field, inner.size() + size, &head);
  return head + inner;
}

}  // namespace

void AppendHead(uint32_t field, size_t size, std::string* out) {
  AppendTag(field, kLengthDelimited, out);
  AppendVarint(size, out);
}

void AppendInteger(uint32_t field, uint64_t value, std::string* out) {
  AppendTag(field, kVarint, out);
  AppendVarint(value, out);
}

std::string ChunkHead(uint32_t frame_field, uint32_t tensor, uint64_t offset,
                      size_t size) {
  std::string chunk;
  AppendInteger(kChunkTensor, tensor, &chunk);
  AppendInteger(kChunkOffset, offset, &chunk);
  AppendHead(kChunkData, size, &chunk);
  return Wrap(frame_field, chunk, size);
}

std::string TensorHead(uint32_t field, int role, int dtype, size_t size) {
  std::string tensor;
  AppendInteger(kTensorRole, static_cast<uint64_t>(role), &tensor);
  AppendInteger(kTensorDType, static_cast<uint64_t>(dtype), &tensor);
  AppendHead(kTensorData, size, &tensor);
  return Wrap(field, tensor, size);
}

}  // namespace counterweight::client
