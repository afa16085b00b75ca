// Tensors of many tokens, made once, for all works and lengths in turn.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_BENCH_TENSORS_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_BENCH_TENSORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/batch.h"
#include "tests/gpu_check/memory.h"
#include "tests/gpu_check/works.h"

namespace counterweight::kernels {

// Rows of one length; host memory.
struct BenchRows {
  BenchRows(int64_t num_tokens, int64_t length);

  std::vector<int64_t> offsets;
  std::vector<int32_t> groups;  // of 8 neighbours each
};

class BenchTensors {
 public:
  // The numbers of tests/benchmark/bench_batch.h, over and over. The mask lies
  // in `host`, everything else in `memory`.
  BenchTensors(Memory& memory, Memory& host, int64_t num_tokens);

  // False: the memory is too small.
  bool ok() const { return ok_; }
  int64_t num_tokens() const { return num_tokens_; }

  // Only what the work needs. REQUIRES: ok(), rows of at most num_tokens().
  Batch batch(const Work& work, const BenchRows& rows) const;
  Outputs outputs(const Work& work) const;

 private:
  int64_t num_tokens_;
  std::vector<std::unique_ptr<Block>> inputs_;
  std::unique_ptr<Block> mask_;
  std::unique_ptr<Block> weights_;
  std::unique_ptr<Block> gradient_;
  std::unique_ptr<Block> keep_mask_;
  bool ok_ = true;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_BENCH_TENSORS_H_
