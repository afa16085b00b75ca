// The order in which the bytes of a batch are sent.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CHUNK_ORDER_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CHUNK_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counterweight::client {

// The sizes of a tensor.
struct ChunkedTensor {
  size_t bytes = 0;
  // Bytes of one position; 0 for tensors with one element per sequence.
  size_t bytes_per_position = 0;
  // Sent whole before the blocks; true for the response mask.
  bool first = false;
};

// One chunk: bytes [offset, offset + size) of a tensor.
struct ChunkRange {
  uint32_t tensor = 0;
  uint64_t offset = 0;
  size_t size = 0;
};

// Iterates over the chunks of a batch: whole tensors first, then blocks of
// positions of all other tensors in turn, so that the server can compute the
// first rows while later ones arrive. The block's length is such that the
// widest tensor's part fits into one chunk.
class ChunkOrder {
 public:
  // `chunk_bytes` >= 1.
  ChunkOrder(std::vector<ChunkedTensor> tensors, size_t chunk_bytes);

  // False after the last chunk.
  bool Next(ChunkRange* range);

 private:
  // End of the bytes that the current round sends of the tensor.
  size_t EndOfRound(size_t tensor) const;

  const std::vector<ChunkedTensor> tensors_;
  const size_t chunk_bytes_;
  uint64_t positions_per_block_ = 1;
  std::vector<size_t> sent_;
  // 0: whole tensors; n: the n-th block of positions.
  uint64_t round_ = 0;
  size_t tensor_ = 0;
  size_t remaining_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CHUNK_ORDER_H_
