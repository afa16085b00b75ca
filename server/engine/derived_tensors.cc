#include "server/engine/derived_tensors.h"

#include <cmath>
#include <cstddef>
#include <tuple>

#include "kernels/doctor/tensor_reader.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::NonFinite;

uint32_t BitOf(InputRole role) { return uint32_t{1} << static_cast<int>(role); }

// Keeps the earlier one.
void KeepFirst(const NonFinite& found, std::optional<NonFinite>* first) {
  if (*first && std::tie((*first)->sequence, (*first)->token) <=
                    std::tie(found.sequence, found.token)) {
    return;
  }
  *first = found;
}

// Makes one difference, a row at a time.
class Differences {
 public:
  Differences(const TensorDifference& of, const kernels::Batch& batch,
              float* out)
      : of_(of), batch_(batch), out_(out) {}

  void Make(int64_t row, std::optional<NonFinite>* first) {
    const int64_t begin = batch_.offsets[row];
    const int64_t n = batch_.offsets[row + 1] - begin;
    if (n == 0) return;
    above_.resize(static_cast<size_t>(n));
    below_.resize(static_cast<size_t>(n));
    kernels::doctor::Read(batch_.tensor(of_.minuend), begin, n, above_.data());
    kernels::doctor::Read(batch_.tensor(of_.subtrahend), begin, n,
                          below_.data());
    for (int64_t i = 0; i < n; ++i) {
      const float above = above_[static_cast<size_t>(i)];
      const float below = below_[static_cast<size_t>(i)];
      const bool counts = batch_.response_mask[begin + i] != 0;
      const auto difference =
          counts ? static_cast<float>(double{above} - double{below}) : 0.0f;
      out_[begin + i] = difference;
      if (std::isfinite(difference)) continue;
      const bool is_below = std::isfinite(above) && !std::isfinite(below);
      KeepFirst({.role = is_below ? of_.subtrahend : of_.minuend,
                 .sequence = row,
                 .token = i,
                 .input = is_below || !std::isfinite(above)},
                first);
    }
  }

 private:
  const TensorDifference of_;
  const kernels::Batch& batch_;
  float* const out_;
  std::vector<float> above_, below_;
};

}  // namespace

uint32_t RolesOf(const DerivedTensors& derived) {
  uint32_t roles = 0;
  for (const TensorDifference& each : derived.differences) {
    roles |= BitOf(each.role);
  }
  return roles;
}

uint32_t SourcesOf(const DerivedTensors& derived) {
  uint32_t sources = 0;
  for (const TensorDifference& each : derived.differences) {
    sources |= BitOf(each.minuend) | BitOf(each.subtrahend);
  }
  return sources;
}

int64_t DerivedBytes(const DerivedTensors& derived, int64_t positions) {
  return static_cast<int64_t>(derived.differences.size()) * positions *
         int64_t{sizeof(float)};
}

std::optional<DerivedBatch> DeriveTensors(const DerivedTensors& derived,
                                          const kernels::CorrectionSpec& spec,
                                          const kernels::Batch& batch,
                                          const kernels::StopRequest& stop) {
  DerivedBatch made{
      .batch = batch, .memory = {}, .turn_means = {}, .non_finite = {}};
  const auto positions =
      static_cast<size_t>(batch.offsets[batch.num_sequences]);
  std::vector<Differences> differences;
  for (const TensorDifference& each : derived.differences) {
    made.memory.push_back(std::make_unique_for_overwrite<float[]>(positions));
    float* const out = made.memory.back().get();
    made.batch.tensors[static_cast<int>(each.role)] = {out,
                                                       kernels::DType::kF32};
    differences.emplace_back(each, batch, out);
  }
  const int64_t rows = differences.empty() ? 0 : batch.num_sequences;
  for (int64_t row = 0; row < rows; ++row) {
    if (stop && stop()) return std::nullopt;
    for (Differences& each : differences) each.Make(row, &made.non_finite);
  }
  if (kernels::ReadsTurnMeans(spec)) {
    if (!made.turn_means.Make(spec, made.batch, stop)) return std::nullopt;
    made.turn_means.AddTo(&made.batch);
  }
  return made;
}

}  // namespace counterweight::server
