// The division of a batch into blocks, and its cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/batch_blocks.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

std::vector<std::vector<int64_t>> Shapes() {
  std::vector<std::vector<int64_t>> shapes = {
      {}, {0}, {1}, {100}, {4096}, {4097}, {0, 0, 0}, {64, 64}, {65, 1, 9000}};
  Random random(1);
  for (int i = 0; i < 30; ++i) {
    std::vector<int64_t>& lengths = shapes.emplace_back();
    for (int64_t row = random.Integer(1, 40); row > 0; --row) {
      lengths.push_back(random.Integer(0, random.Chance(0.1) ? 9000 : 200));
    }
  }
  return shapes;
}

template <class T>
int64_t Allocated(const std::vector<T>& array) {
  return static_cast<int64_t>(array.capacity() * sizeof(T));
}

TEST(Blocks, AreRowsInOrderAndAllButTheLastAreFull) {
  for (const std::vector<int64_t>& lengths : Shapes()) {
    Random random(2);
    const OwnedBatch batch(RandomRows(random, lengths));
    for (const int64_t positions : {1, 64, 65, 300, 5000, 1 << 20}) {
      int64_t next = 0;
      const BatchBlocks cut = CutIntoBlocks(batch.view(), positions);
      for (size_t i = 0; i < cut.blocks.size(); ++i) {
        const Block& block = cut.blocks[i];
        EXPECT_EQ(block.first_row, next);
        EXPECT_EQ(block.begin, batch.view().offsets[block.first_row]);
        EXPECT_EQ(block.end, batch.view().offsets[block.last_row]);
        int64_t counted = 0;
        for (int64_t row = block.first_row; row < block.last_row; ++row) {
          // The last row fills the block.
          EXPECT_LT(counted, positions);
          counted += std::max<int64_t>(lengths[static_cast<size_t>(row)], 64);
        }
        if (i + 1 < cut.blocks.size()) {
          EXPECT_GE(counted, positions);
        }
        next = block.last_row;
      }
      EXPECT_EQ(next, batch.num_sequences());
    }
  }
}

// The admitted bytes cover the allocation.
TEST(Blocks, CostNoMoreThanIsReserved) {
  for (const std::vector<int64_t>& lengths : Shapes()) {
    Random random(2);
    const OwnedBatch batch(RandomRows(random, lengths));
    for (const int64_t positions : {1, 64, 65, 300, 5000, 1 << 20}) {
      const BatchBlocks cut = CutIntoBlocks(batch.view(), positions);
      EXPECT_LE(Allocated(cut.blocks) + Allocated(cut.row_segments),
                BlocksBytes(batch.view(), positions))
          << lengths.size() << " rows, blocks of " << positions;
    }
  }
}

}  // namespace
}  // namespace counterweight::kernels
