// A batch of generated rollouts with memory for its outputs.
#ifndef COUNTERWEIGHT_TESTS_BENCHMARK_BENCH_BATCH_H_
#define COUNTERWEIGHT_TESTS_BENCHMARK_BENCH_BATCH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// num_tokens / length rows of `length`; nine tokens of ten count. Log-probs are
// float32, log ratios have a standard deviation of 0.1, and only the tensors
// that `spec` needs are there.
class BenchBatch {
 public:
  BenchBatch(const CorrectionSpec& spec, int64_t num_tokens, int64_t length);

  Batch view() const;
  // Weights (if the spec has them) and the keep mask, which are the default
  // outputs.
  Outputs outputs();

  int64_t num_positions() const { return offsets_.back(); }
  // Inputs read once and outputs written once.
  int64_t bytes_per_token() const;

 private:
  std::vector<int64_t> offsets_{0};
  std::array<std::vector<float>, kNumInputRoles> tensors_;
  std::vector<uint8_t> mask_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
  std::vector<uint8_t> keep_mask_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_BENCHMARK_BENCH_BATCH_H_
