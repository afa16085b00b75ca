#include "kernels/cuda/batch_blocks.h"

#include <algorithm>

#include "kernels/plan/plan.h"

namespace counterweight::kernels {
namespace {

// Empty rows have one segment too.
int64_t SegmentsOfRow(int64_t positions) {
  return std::max<int64_t>(SegmentsOf(positions), 1);
}

// An upper bound: each block has a row, and all but one are full.
int64_t MostBlocks(const Batch& batch, int64_t block_positions) {
  const int64_t positions = batch.offsets[batch.num_sequences];
  const int64_t counted =
      positions + batch.num_sequences * kPositionsOfShortRow;
  return std::min(batch.num_sequences, counted / block_positions + 1);
}

}  // namespace

BatchBlocks CutIntoBlocks(const Batch& batch, int64_t block_positions) {
  BatchBlocks cut;
  const int64_t most = MostBlocks(batch, block_positions);
  cut.blocks.reserve(static_cast<size_t>(most));
  cut.row_segments.reserve(static_cast<size_t>(batch.num_sequences + most));
  for (int64_t row = 0; row < batch.num_sequences;) {
    Block block{};
    block.first_row = row;
    block.begin = batch.offsets[row];
    block.first_segment = cut.num_segments;
    block.row_segments = static_cast<int64_t>(cut.row_segments.size());
    int64_t counted = 0;
    do {
      cut.row_segments.push_back(block.num_segments);
      const int64_t positions = batch.offsets[row + 1] - batch.offsets[row];
      counted += std::max(positions, kPositionsOfShortRow);
      const int64_t segments = SegmentsOfRow(positions);
      block.most_segments = std::max(block.most_segments, segments);
      block.num_segments += segments;
      ++row;
    } while (row < batch.num_sequences && counted < block_positions);
    cut.row_segments.push_back(block.num_segments);
    cut.num_segments += block.num_segments;
    block.last_row = row;
    block.end = batch.offsets[row];
    cut.blocks.push_back(block);
  }
  return cut;
}

int64_t BlocksBytes(const Batch& batch, int64_t block_positions) {
  const int64_t most = MostBlocks(batch, block_positions);
  return (batch.num_sequences + most) * static_cast<int64_t>(sizeof(int64_t)) +
         most * static_cast<int64_t>(sizeof(Block));
}

}  // namespace counterweight::kernels
