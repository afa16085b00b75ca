#include "client/cpp/response.h"

namespace counterweight::client {

std::byte* OutputMemory::Reserve(v1::TensorRole role, size_t bytes) {
  Block& block = blocks_[role];
  if (block.bytes < bytes || block.data == nullptr) {
    block.data.reset();
    block.data = std::make_unique_for_overwrite<std::byte[]>(bytes);
    block.bytes = bytes;
  }
  return block.data.get();
}

const OutputTensor* Response::Find(v1::TensorRole role) const {
  for (const OutputTensor& output : outputs) {
    if (output.role == role) return &output;
  }
  return nullptr;
}

}  // namespace counterweight::client
