// A batch cut into blocks of whole rows.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_BATCH_BLOCKS_H_
#define COUNTERWEIGHT_KERNELS_CUDA_BATCH_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"

namespace counterweight::kernels {

// Rows [first_row, last_row), positions [begin, end) of the batch.
struct Block {
  int64_t first_row, last_row;
  int64_t begin, end;
  int64_t first_segment, num_segments;
  // Where the block's own row_segments begin: [rows + 1], counted from the
  // block's first segment. Its offsets on the device begin there too.
  int64_t row_segments;
  int64_t most_segments;  // of a row

  int64_t rows() const { return last_row - first_row; }
};

struct BatchBlocks {
  std::vector<Block> blocks;
  std::vector<int64_t> row_segments;
  int64_t num_segments = 0;
};

// Blocks have at least one row, and end when they have `block_positions`; a
// row counts as at least kPositionsOfShortRow of them.
BatchBlocks CutIntoBlocks(const Batch& batch, int64_t block_positions);

// Even a row without tokens costs a record and a decision.
inline constexpr int64_t kPositionsOfShortRow = 64;

// Bytes that CutIntoBlocks allocates at most.
int64_t BlocksBytes(const Batch& batch, int64_t block_positions);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_BATCH_BLOCKS_H_
