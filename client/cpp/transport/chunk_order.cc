#include "client/cpp/transport/chunk_order.h"

#include <algorithm>
#include <utility>

namespace counterweight::client {

ChunkOrder::ChunkOrder(std::vector<ChunkedTensor> tensors, size_t chunk_bytes)
    : tensors_(std::move(tensors)),
      chunk_bytes_(chunk_bytes),
      sent_(tensors_.size(), 0),
      remaining_(0) {
  size_t widest = 1;
  for (const ChunkedTensor& tensor : tensors_) {
    remaining_ += tensor.bytes;
    if (!tensor.first) widest = std::max(widest, tensor.bytes_per_position);
  }
  positions_per_block_ = std::max<uint64_t>(1, chunk_bytes / widest);
}

size_t ChunkOrder::EndOfRound(size_t tensor) const {
  const ChunkedTensor& what = tensors_[tensor];
  if (what.first || what.bytes_per_position == 0) return what.bytes;
  // No overflow: a round begins only while bytes remain, and a block is about
  // as large as a chunk.
  return std::min<uint64_t>(
      what.bytes, round_ * positions_per_block_ * what.bytes_per_position);
}

bool ChunkOrder::Next(ChunkRange* range) {
  if (remaining_ == 0) return false;
  for (;;) {
    if (tensor_ == tensors_.size()) {
      tensor_ = 0;
      ++round_;
    }
    const size_t offset = sent_[tensor_];
    const size_t end = EndOfRound(tensor_);
    if (offset == end) {
      ++tensor_;
      continue;
    }
    range->tensor = static_cast<uint32_t>(tensor_);
    range->offset = offset;
    range->size = std::min(end - offset, chunk_bytes_);
    sent_[tensor_] += range->size;
    remaining_ -= range->size;
    return true;
  }
}

}  // namespace counterweight::client
