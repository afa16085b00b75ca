#include "tests/testing/batch_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace counterweight::kernels {
namespace {

uint16_t ToBF16(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t nearest_even = 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits + nearest_even) >> 16);
}

// |value| = mantissa * 2^(exponent - 10); below 2^-14 the exponent stays.
uint16_t ToF16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return 0x7e00;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  const int exponent =
      magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  const long mantissa = std::lrint(std::ldexp(magnitude, 10 - exponent));
  return static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + mantissa));
}

void Append(std::vector<std::byte>& bytes, const void* data, size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + size);
}

void AppendValue(std::vector<std::byte>& bytes, DType dtype, float value) {
  if (dtype == DType::kF32) return Append(bytes, &value, sizeof(value));
  const uint16_t half = dtype == DType::kBF16 ? ToBF16(value) : ToF16(value);
  Append(bytes, &half, sizeof(half));
}

}  // namespace

Row RowOf(const std::vector<float>& log_ratios) {
  Row row;
  row.mask.assign(log_ratios.size(), 1);
  row[InputRole::kRollout].assign(log_ratios.size(), 0.0f);
  row[InputRole::kOld] = log_ratios;
  return row;
}

OwnedBatch::OwnedBatch(const std::vector<Row>& rows, Layout layout)
    : layout_(layout) {
  // Rows without tokens do not show their roles: they have all.
  const bool no_tokens = std::all_of(
      rows.begin(), rows.end(), [](const Row& row) { return row.size() == 0; });
  for (int role = 0; role < kNumInputRoles; ++role) {
    tensors_[role].resize(layout.misalignment);
    sent_[role] = no_tokens;
    for (const Row& row : rows) sent_[role] |= !row.values[role].empty();
  }
  for (const Row& row : rows) {
    const int64_t padding =
        std::max(layout.padded_length - row.size(), int64_t{0});
    offsets_.push_back(offsets_.back() + row.size() + padding);
    mask_.insert(mask_.end(), row.mask.begin(), row.mask.end());
    mask_.insert(mask_.end(), padding, 0);
    for (int role = 0; role < kNumInputRoles; ++role) {
      if (!sent_[role]) continue;
      for (float value : row.values[role])
        AppendValue(tensors_[role], layout.dtype, value);
      for (int64_t i = 0; i < padding; ++i)
        AppendValue(tensors_[role], layout.dtype, layout.padding);
    }
  }
}

Batch OwnedBatch::view() const {
  // A tensor that was sent is not null even when it has no elements.
  static const std::byte kNothing{};
  Batch batch;
  batch.num_sequences = static_cast<int64_t>(offsets_.size()) - 1;
  batch.offsets = offsets_.data();
  batch.response_mask = mask_.data();
  batch.groups = groups_.empty() ? nullptr : groups_.data();
  batch.num_groups = num_groups_;
  batch.row_divisors = row_divisors_.empty() ? nullptr : row_divisors_.data();
  for (int role = 0; role < kNumInputRoles; ++role) {
    batch.tensors[role].dtype = layout_.dtype;
    if (sent_[role])
      batch.tensors[role].data =
          tensors_[role].empty() ? &kNothing
                                 : tensors_[role].data() + layout_.misalignment;
  }
  return batch;
}

}  // namespace counterweight::kernels
