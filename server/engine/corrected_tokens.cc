#include "server/engine/corrected_tokens.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/doctor/passes.h"
#include "kernels/doctor/tensor_reader.h"

namespace counterweight::server {

using kernels::InputRole;
using kernels::kNumInputRoles;

void Subtract(std::span<const double> a, std::span<const double> b,
              RowNumbers* out) {
  out->resize(a.size());
  for (size_t i = 0; i < a.size(); ++i) (*out)[i] = a[i] - b[i];
}

void Exponentials(std::span<const double> x, RowNumbers* exp,
                  RowNumbers* expm1) {
  exp->resize(x.size());
  expm1->resize(x.size());
  kernels::doctor::BestPasses().exponentials(
      x.data(), static_cast<int64_t>(x.size()), exp->data(), expm1->data());
}

void Logarithms(std::span<const double> x, RowNumbers* log) {
  log->resize(x.size());
  kernels::doctor::BestPasses().logarithms(
      x.data(), static_cast<int64_t>(x.size()), log->data());
}

CorrectedTokens::CorrectedTokens(const kernels::Batch& batch,
                                 const kernels::CorrectionSpec& spec,
                                 const uint8_t* keep, const float* weights,
                                 kernels::StopRequest stop)
    : batch_(batch),
      policy_(spec.non_finite),
      read_(kernels::RequiredTensors(spec)),
      keep_(keep),
      weights_(weights),
      stop_(std::move(stop)) {}

RowTokens CorrectedTokens::Read(int64_t row, Buffers* buffers) const {
  const int64_t begin = batch_.offsets[row];
  const auto n = static_cast<size_t>(batch_.offsets[row + 1] - begin);
  RowTokens tokens{.row = row};
  buffers->mask.resize(n);
  buffers->weights.resize(n);
  buffers->raw.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(begin) + i;
    buffers->mask[i] = batch_.response_mask[at] != 0 ? 1 : 0;
    buffers->weights[i] = double{weights_[at]};
  }
  for (int r = 0; r < kNumInputRoles; ++r) {
    const kernels::TensorView& tensor = batch_.tensors[r];
    if (tensor.data == nullptr) continue;
    std::vector<double>& values = buffers->values[r];
    values.resize(n);
    kernels::doctor::Read(tensor, begin, static_cast<int64_t>(n),
                          buffers->raw.data());
    std::copy(buffers->raw.begin(), buffers->raw.end(), values.begin());
    tokens.values[r] = values;
  }
  for (size_t i = 0; i < n; ++i) {
    bool is_finite = true;
    ForRead(buffers, [&](std::vector<double>& values) {
      is_finite = is_finite && std::isfinite(values[i]);
    });
    if (is_finite) continue;
    ForRead(buffers, [&](std::vector<double>& values) { values[i] = 0.0; });
    if (policy_ == kernels::NonFinitePolicy::kDrop) buffers->mask[i] = 0;
  }
  tokens.mask = buffers->mask;
  tokens.keep = {keep_ + begin, n};
  tokens.weights = buffers->weights;
  return tokens;
}

int64_t CorrectedTokens::ScratchBytes(int64_t longest) {
  // A pass keeps RowNumbers of its own, too.
  constexpr int64_t kOfPass = 12;
  constexpr int64_t kOfPosition =
      int64_t{sizeof(float)} + 1 +
      (kNumInputRoles + 1 + kOfPass) * int64_t{sizeof(double)};
  return longest * kOfPosition;
}

}  // namespace counterweight::server
