// The works of gpu_bench.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_WORKS_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_WORKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/spec.h"

namespace counterweight::kernels {

struct Work {
  std::string name;
  CorrectionSpec spec;

  // Whether it has weights, a gradient. The keep mask is always written.
  bool weighs() const { return spec.weight.level != Level::kNone; }
  bool has_loss() const { return spec.loss.surrogate != Surrogate::kNone; }

  // Minimal bytes per token: inputs read once, float32 log-probs, and outputs
  // written once.
  int64_t input_bytes() const;
  int64_t output_bytes() const { return 1 + 4 * weighs() + 4 * has_loss(); }
  int64_t bytes() const { return input_bytes() + output_bytes(); }
};

// Those of the targets: token_tis and ppo_clip, with metrics and without
// ("token_tis, no metrics"), token_tis+3_rules.
std::vector<Work> TargetWorks();

// Every other method of the table, with default parameters.
std::vector<Work> OtherWorks();

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_WORKS_H_
