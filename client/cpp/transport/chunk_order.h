// In which order the bytes of a batch are sent.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CHUNK_ORDER_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CHUNK_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counterweight::client {

// A tensor as the order sees it.
struct ChunkedTensor {
  size_t bytes = 0;
  // Of one position; 0 for tensors with one element per sequence.
  size_t bytes_per_position = 0;
  // Sent as a whole before those that are not: the response mask.
  bool first = false;
};

// One chunk: bytes [offset, offset + size) of a tensor.
struct ChunkRange {
  uint32_t tensor = 0;
  uint64_t offset = 0;
  size_t size = 0;
};

// Walks over the chunks of a batch: whole tensors first, then blocks of
// positions of all the others in turn, so that the server can compute the first
// rows while later ones come. A block is as long as the widest tensor fits into
// one chunk.
class ChunkOrder {
 public:
  // `chunk_bytes` >= 1.
  ChunkOrder(std::vector<ChunkedTensor> tensors, size_t chunk_bytes);

  // False when all was sent.
  bool Next(ChunkRange* range);

 private:
  // Bytes of the tensor that the current round sends up to.
  size_t EndOfRound(size_t tensor) const;

  const std::vector<ChunkedTensor> tensors_;
  const size_t chunk_bytes_;
  uint64_t positions_per_block_ = 1;
  std::vector<size_t> sent_;
  // 0: whole tensors; n: the n-th block of positions.
  uint64_t round_ = 0;
  size_t tensor_ = 0;
  size_t left_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CHUNK_ORDER_H_
