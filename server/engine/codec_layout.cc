#include "server/engine/codec_layout.h"

#include <algorithm>
#include <string>
#include <utility>

namespace counterweight::server {
namespace {

// Limit of a padded batch that is described, not sent: exact as a double.
constexpr int64_t kMaxPaddedPositions = int64_t{1} << 53;

Result<Layout> Refuse(std::string field, std::string description) {
  return {{}, {{std::move(field), std::move(description)}}};
}

Result<Layout> ReadPadded(const v1::PaddedLayout& padded,
                          const RequestLimits& limits) {
  const int64_t rows = padded.num_sequences();
  const int64_t length = padded.length();
  if (rows < 0 || rows > limits.max_sequences) {
    return Refuse(
        "layout.padded.num_sequences",
        "must be in [0, " + std::to_string(limits.max_sequences) + "]");
  }
  // Division, because the product may overflow.
  if (length < 0 || (rows > 0 && length > limits.max_tokens / rows)) {
    return Refuse("layout.padded.length",
                  "must be >= 0, and num_sequences * length at most " +
                      std::to_string(limits.max_tokens));
  }
  Layout layout{rows, rows * length, length, {}};
  layout.offsets.resize(static_cast<size_t>(rows) + 1);
  for (int64_t i = 0; i <= rows; ++i) {
    layout.offsets[static_cast<size_t>(i)] = i * length;
  }
  return {std::move(layout), {}};
}

Result<Layout> ReadPacked(const v1::PackedLayout& packed,
                          const RequestLimits& limits) {
  const int64_t rows = packed.sequence_lengths_size();
  if (rows > limits.max_sequences) {
    return Refuse("layout.packed.sequence_lengths",
                  "has " + std::to_string(rows) + " entries; at most " +
                      std::to_string(limits.max_sequences));
  }
  Layout layout{.num_sequences = rows};
  layout.offsets.reserve(static_cast<size_t>(rows) + 1);
  layout.offsets.push_back(0);
  int64_t longest = 0;
  for (int i = 0; i < packed.sequence_lengths_size(); ++i) {
    const int64_t length = packed.sequence_lengths(i);
    if (length < 0 || length > limits.max_tokens - layout.offsets.back()) {
      return Refuse("layout.packed.sequence_lengths[" + std::to_string(i) + "]",
                    "must be >= 0, and the sum at most " +
                        std::to_string(limits.max_tokens));
    }
    longest = std::max(longest, length);
    layout.offsets.push_back(layout.offsets.back() + length);
  }
  if (packed.has_padded_length() &&
      (packed.padded_length() < longest ||
       packed.padded_length() > limits.max_tokens)) {
    return Refuse("layout.packed.padded_length",
                  "must be in [" + std::to_string(longest) + ", " +
                      std::to_string(limits.max_tokens) +
                      "], from the longest sequence to the most positions");
  }
  if (packed.padded_length() >
      kMaxPaddedPositions / std::max<int64_t>(rows, 1)) {
    return Refuse("layout.packed.padded_length",
                  "times the number of sequences must be at most " +
                      std::to_string(kMaxPaddedPositions));
  }
  layout.num_positions = layout.offsets.back();
  layout.padded_length =
      packed.has_padded_length() ? packed.padded_length() : longest;
  return {std::move(layout), {}};
}

}  // namespace

Result<Layout> ReadLayout(const v1::Layout& layout,
                          const RequestLimits& limits) {
  switch (layout.layout_case()) {
    case v1::Layout::kPadded:
      return ReadPadded(layout.padded(), limits);
    case v1::Layout::kPacked:
      return ReadPacked(layout.packed(), limits);
    case v1::Layout::LAYOUT_NOT_SET:
      break;
  }
  return Refuse("layout", "is required: padded or packed");
}

}  // namespace counterweight::server
