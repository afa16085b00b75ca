#include "server/engine/codec_layout.h"

#include <algorithm>
#include <string>

namespace counterweight::server {
namespace {

// Of a padded batch that is described, not sent: exact as a double.
constexpr int64_t kMaxPaddedPositions = int64_t{1} << 53;

void DecodePadded(const v1::PaddedLayout& padded, const RequestLimits& limits,
                  std::vector<int64_t>* offsets, LayoutInfo* info,
                  Violations* violations) {
  const int64_t rows = padded.num_sequences();
  const int64_t length = padded.length();
  if (rows < 0 || rows > limits.max_sequences) {
    violations->push_back(
        {"layout.padded.num_sequences",
         "must be in [0, " + std::to_string(limits.max_sequences) + "]"});
    return;
  }
  // Division, because the product may overflow.
  if (length < 0 || (rows > 0 && length > limits.max_tokens / rows)) {
    violations->push_back({"layout.padded.length",
                           "must be >= 0, and num_sequences * length at most " +
                               std::to_string(limits.max_tokens)});
    return;
  }
  offsets->resize(static_cast<size_t>(rows) + 1);
  for (int64_t i = 0; i <= rows; ++i) {
    (*offsets)[static_cast<size_t>(i)] = i * length;
  }
  *info = {rows, rows * length, length};
}

void DecodePacked(const v1::PackedLayout& packed, const RequestLimits& limits,
                  std::vector<int64_t>* offsets, LayoutInfo* info,
                  Violations* violations) {
  const int64_t rows = packed.sequence_lengths_size();
  if (rows > limits.max_sequences) {
    violations->push_back({"layout.packed.sequence_lengths",
                           "has " + std::to_string(rows) +
                               " entries; at most " +
                               std::to_string(limits.max_sequences)});
    return;
  }
  offsets->reserve(static_cast<size_t>(rows) + 1);
  offsets->push_back(0);
  int64_t longest = 0;
  for (int i = 0; i < packed.sequence_lengths_size(); ++i) {
    const int64_t length = packed.sequence_lengths(i);
    if (length < 0 || length > limits.max_tokens - offsets->back()) {
      violations->push_back(
          {"layout.packed.sequence_lengths[" + std::to_string(i) + "]",
           "must be >= 0, and the sum at most " +
               std::to_string(limits.max_tokens)});
      return;
    }
    longest = std::max(longest, length);
    offsets->push_back(offsets->back() + length);
  }
  if (packed.has_padded_length() &&
      (packed.padded_length() < longest ||
       packed.padded_length() > limits.max_tokens)) {
    violations->push_back(
        {"layout.packed.padded_length",
         "must be in [" + std::to_string(longest) + ", " +
             std::to_string(limits.max_tokens) +
             "], from the longest sequence to the most positions"});
    return;
  }
  if (packed.padded_length() >
      kMaxPaddedPositions / std::max<int64_t>(rows, 1)) {
    violations->push_back({"layout.packed.padded_length",
                           "times the number of sequences must be at most " +
                               std::to_string(kMaxPaddedPositions)});
    return;
  }
  *info = {rows, offsets->back(),
           packed.has_padded_length() ? packed.padded_length() : longest};
}

}  // namespace

bool DecodeLayout(const v1::Layout& layout, const RequestLimits& limits,
                  std::vector<int64_t>* offsets, LayoutInfo* info,
                  Violations* violations) {
  const size_t before = violations->size();
  switch (layout.layout_case()) {
    case v1::Layout::kPadded:
      DecodePadded(layout.padded(), limits, offsets, info, violations);
      break;
    case v1::Layout::kPacked:
      DecodePacked(layout.packed(), limits, offsets, info, violations);
      break;
    case v1::Layout::LAYOUT_NOT_SET:
      violations->push_back({"layout", "is required: padded or packed"});
  }
  return violations->size() == before;
}

}  // namespace counterweight::server
