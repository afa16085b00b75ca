#include "client/cpp/transport/chunk_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace counterweight::client {
namespace {

// Two tensors of 4 bytes a position, one of 2, a mask, one per sequence.
std::vector<ChunkedTensor> Tensors(size_t positions) {
  return {{.bytes = 4 * positions, .bytes_per_position = 4},
          {.bytes = 4 * positions, .bytes_per_position = 4},
          {.bytes = 2 * positions, .bytes_per_position = 2},
          {.bytes = positions, .bytes_per_position = 1, .first = true},
          {.bytes = 12, .bytes_per_position = 0}};
}

TEST(ChunkOrder, SendsEveryByteOnceAndInOrder) {
  for (const size_t chunk_bytes : {1, 2, 3, 4, 5, 64, 1000, 1 << 24}) {
    const std::vector<ChunkedTensor> tensors = Tensors(101);
    std::vector<size_t> sent(tensors.size(), 0);
    ChunkOrder order(tensors, chunk_bytes);
    ChunkRange range;
    while (order.Next(&range)) {
      EXPECT_EQ(range.offset, sent[range.tensor]);
      EXPECT_GE(range.size, 1U);
      EXPECT_LE(range.size, chunk_bytes);
      sent[range.tensor] += range.size;
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(sent[i], tensors[i].bytes);
    }
  }
}

TEST(ChunkOrder, SendsTheMaskFirstAndThenBlocksOfPositionsOfAllTensors) {
  ChunkOrder order(Tensors(20), /*chunk_bytes=*/32);
  std::vector<std::vector<size_t>> chunks;
  ChunkRange range;
  while (order.Next(&range)) {
    chunks.push_back({range.tensor, range.offset, range.size});
  }
  // Eight positions fill a chunk of the widest.
  EXPECT_EQ(chunks, (std::vector<std::vector<size_t>>{{3, 0, 20},
                                                      {4, 0, 12},
                                                      {0, 0, 32},
                                                      {1, 0, 32},
                                                      {2, 0, 16},
                                                      {0, 32, 32},
                                                      {1, 32, 32},
                                                      {2, 16, 16},
                                                      {0, 64, 16},
                                                      {1, 64, 16},
                                                      {2, 32, 8}}));
}

TEST(ChunkOrder, HasNothingToSendOfAnEmptyBatch) {
  ChunkRange range;
  EXPECT_FALSE(ChunkOrder({}, 1).Next(&range));
  EXPECT_FALSE(
      ChunkOrder({{.bytes = 0, .bytes_per_position = 4}}, 1).Next(&range));
}

}  // namespace
}  // namespace counterweight::client
