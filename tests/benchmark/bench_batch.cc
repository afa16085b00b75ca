#include "tests/benchmark/bench_batch.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/corrector.h"

namespace counterweight::kernels {
namespace {

// Random numbers are generated once and repeated, which the kernels cannot
// notice.
constexpr int64_t kValuePeriod = int64_t{1} << 20;
constexpr double kSpread = 0.1;
constexpr double kCounts = 0.9;

struct Samples {
  std::array<std::vector<float>, kNumInputRoles> tensors;
  std::vector<uint8_t> mask;
};

const Samples& OnePeriod() {
  static const Samples* const kSamples = [] {
    auto* samples = new Samples();
    std::mt19937_64 engine(1);
    std::exponential_distribution<double> surprise(1.0);
    std::normal_distribution<double> normal;
    std::bernoulli_distribution counts(kCounts);
    const auto add = [&](InputRole role, double value) {
      samples->tensors[static_cast<size_t>(role)].push_back(
          static_cast<float>(value));
    };
    // No log-prob is above 0, which would take a pass of its own.
    const auto near = [&](double log_prob) {
      return -std::abs(log_prob + kSpread * normal(engine));
    };
    for (int64_t i = 0; i < kValuePeriod; ++i) {
      const double rollout = -surprise(engine);
      const double old = near(rollout);
      add(InputRole::kRollout, rollout);
      add(InputRole::kOld, old);
      add(InputRole::kCurrent, near(old));
      add(InputRole::kAdvantages, normal(engine));
      add(InputRole::kRef, near(old));
      samples->mask.push_back(counts(engine) ? 1 : 0);
    }
    return samples;
  }();
  return *kSamples;
}

template <typename T>
std::vector<T> Repeat(const std::vector<T>& period, int64_t count) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(values.size()) < count) {
    const int64_t left = count - static_cast<int64_t>(values.size());
    values.insert(values.end(), period.begin(),
                  period.begin() + std::min(kValuePeriod, left));
  }
  return values;
}

}  // namespace

BenchBatch::BenchBatch(const CorrectionSpec& spec, int64_t num_tokens,
                       int64_t length) {
  while (offsets_.back() + length <= num_tokens) {
    offsets_.push_back(offsets_.back() + length);
  }
  const uint32_t required = RequiredTensors(spec);
  const Samples& samples = OnePeriod();
  for (size_t role = 0; role < kNumInputRoles; ++role) {
    if ((required >> role & 1) == 0) continue;
    tensors_[role] = Repeat(samples.tensors[role], num_positions());
  }
  mask_ = Repeat(samples.mask, num_positions());
  if (spec.weight.level != Level::kNone) {
    weights_.resize(static_cast<size_t>(num_positions()));
  }
  if (spec.loss.surrogate != Surrogate::kNone) {
    gradient_.resize(static_cast<size_t>(num_positions()));
  }
  keep_mask_.resize(static_cast<size_t>(num_positions()));
}

Batch BenchBatch::view() const {
  Batch batch;
  batch.num_sequences = static_cast<int64_t>(offsets_.size()) - 1;
  batch.offsets = offsets_.data();
  batch.response_mask = mask_.data();
  for (size_t role = 0; role < kNumInputRoles; ++role) {
    if (tensors_[role].empty()) continue;
    batch.tensors[role] = {tensors_[role].data(), DType::kF32};
  }
  return batch;
}

Outputs BenchBatch::outputs() {
  Outputs outputs;
  if (!weights_.empty()) outputs.weights = weights_.data();
  if (!gradient_.empty()) outputs.gradient = gradient_.data();
  outputs.keep_mask = keep_mask_.data();
  return outputs;
}

int64_t BenchBatch::bytes_per_token() const {
  int64_t bytes = sizeof(mask_[0]) + sizeof(keep_mask_[0]);
  for (const auto& tensor : tensors_) {
    if (!tensor.empty()) bytes += sizeof(tensor[0]);
  }
  if (!weights_.empty()) bytes += sizeof(weights_[0]);
  if (!gradient_.empty()) bytes += sizeof(gradient_[0]);
  return bytes;
}

}  // namespace counterweight::kernels
