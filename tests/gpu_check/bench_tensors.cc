#include "tests/gpu_check/bench_tensors.h"

#include <algorithm>

#include "kernels/corrector.h"
#include "tests/benchmark/bench_batch.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kPeriod = int64_t{1} << 20;
constexpr int64_t kRowsOfGroup = 8;

// Reads every input role.
CorrectionSpec EveryInput() {
  CorrectionSpec spec;
  spec.weight.level = Level::kToken;
  spec.loss.surrogate = Surrogate::kPpoClip;
  spec.loss.kl.estimator = KlEstimator::kK3;
  spec.loss.kl.coefficient = 1.0;
  return spec;
}

bool Fill(Memory& memory, const Block& block, const void* period,
          int64_t period_bytes, int64_t bytes) {
  if (block.data() == nullptr) return false;
  for (int64_t at = 0; at < bytes; at += period_bytes) {
    const auto size = static_cast<size_t>(std::min(period_bytes, bytes - at));
    if (!memory.Copy(block.data() + at, period, size)) return false;
  }
  return true;
}

std::unique_ptr<Block> Allocate(Memory& memory, int64_t bytes) {
  return std::make_unique<Block>(memory, static_cast<size_t>(bytes));
}

}  // namespace

BenchRows::BenchRows(int64_t num_tokens, int64_t length) : offsets{0} {
  while (offsets.back() + length <= num_tokens) {
    groups.push_back(static_cast<int32_t>(
        (static_cast<int64_t>(offsets.size()) - 1) / kRowsOfGroup));
    offsets.push_back(offsets.back() + length);
  }
}

BenchTensors::BenchTensors(Memory& memory, Memory& host, int64_t num_tokens)
    : num_tokens_(num_tokens) {
  const BenchBatch source(EveryInput(), kPeriod, kPeriod);
  const Batch period = source.view();
  for (int role = 0; role < kNumInputRoles; ++role) {
    const TensorView& tensor = period.tensors[role];
    const int64_t size = SizeOf(tensor.dtype);
    inputs_.push_back(Allocate(memory, size * num_tokens));
    ok_ = ok_ && Fill(memory, *inputs_.back(), tensor.data, size * kPeriod,
                      size * num_tokens);
  }
  mask_ = Allocate(host, num_tokens);
  ok_ = ok_ && Fill(host, *mask_, period.response_mask, kPeriod, num_tokens);
  // Written once before anything is timed, as buffers of a trainer are.
  const std::vector<char> zeros(kPeriod);
  const auto output = [&](int64_t bytes) {
    std::unique_ptr<Block> block = Allocate(memory, bytes);
    ok_ = ok_ && Fill(memory, *block, zeros.data(), kPeriod, bytes);
    return block;
  };
  weights_ = output(num_tokens * int64_t{sizeof(float)});
  gradient_ = output(num_tokens * int64_t{sizeof(float)});
  keep_mask_ = output(num_tokens);
}

Batch BenchTensors::batch(const Work& work, const BenchRows& rows) const {
  Batch batch;
  batch.num_sequences = static_cast<int64_t>(rows.groups.size());
  batch.offsets = rows.offsets.data();
  batch.groups = rows.groups.data();
  batch.num_groups = rows.groups.empty() ? 0 : rows.groups.back() + 1;
  batch.response_mask = reinterpret_cast<const uint8_t*>(mask_->data());
  const uint32_t required = RequiredTensors(work.spec);
  for (size_t role = 0; role < inputs_.size(); ++role) {
    if ((required >> role & 1u) == 0) continue;
    batch.tensors[role] = {inputs_[role]->data(), DType::kF32};
  }
  return batch;
}

Outputs BenchTensors::outputs(const Work& work) const {
  Outputs outputs;
  outputs.keep_mask = reinterpret_cast<uint8_t*>(keep_mask_->data());
  if (work.weighs()) {
    outputs.weights = reinterpret_cast<float*>(weights_->data());
  }
  if (work.has_loss()) {
    outputs.gradient = reinterpret_cast<float*>(gradient_->data());
  }
  return outputs;
}

}  // namespace counterweight::kernels
