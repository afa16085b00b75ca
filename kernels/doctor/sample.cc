#include "kernels/doctor/sample.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/bits.h"

namespace counterweight::kernels::doctor {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable
// Pseudorandom Number Generators, 2014).
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Indices of the rows, ascending. A row that alone is too long is cut.
std::vector<int64_t> ChooseRows(const Batch& batch) {
  std::vector<int64_t> rows;
  const int64_t total = batch.offsets[batch.num_sequences];
  const bool all = total <= kMostExamined;
  // Rows below the share of hashes that fills the sample.
  const double share = all ? 1.0 : static_cast<double>(kMostExamined) / total;
  const auto limit = static_cast<uint64_t>(share * 0x1p63);
  int64_t left = kMostExamined;
  int64_t least = 0;
  for (int64_t row = 0; row < batch.num_sequences; ++row) {
    const int64_t length = batch.offsets[row + 1] - batch.offsets[row];
    if (length == 0) continue;
    const uint64_t hash = Mixed(static_cast<uint64_t>(row)) >> 1;
    if (hash < (Mixed(static_cast<uint64_t>(least)) >> 1)) least = row;
    if (!all && (hash >= limit || length > left)) continue;
    left -= length;
    rows.push_back(row);
  }
  if (rows.empty() && total > 0) rows.push_back(least);
  return rows;
}

// A row's positions, before those that count are picked.
struct Buffer {
  std::vector<float> values[kMostStreams];

  void Load(const Streams& streams, int64_t begin, int64_t n) {
    for (int s = 0; s < streams.count; ++s) {
      values[s].resize(static_cast<size_t>(n));
      Read(streams.tensors[s], begin, n, values[s].data());
    }
  }
  bool IsFinite(const Streams& streams, size_t i) const {
    for (int s = 0; s < streams.count; ++s) {
      if (!is_finite(values[s][i])) return false;
    }
    return true;
  }
};

void AddRow(const Batch& batch, const Streams& streams, int64_t sequence,
            Buffer* buffer, Sample* sample) {
  const int64_t first = batch.offsets[sequence];
  const int64_t n =
      std::min(batch.offsets[sequence + 1] - first, kMostExamined);
  buffer->Load(streams, first, n);
  const int64_t begin = sample->tokens;
  int64_t outside = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    if (batch.response_mask[first + i] == 0) {
      const float value = buffer->values[0][at];
      outside += is_finite(value) && value != 0.0f;
      continue;
    }
    if (!buffer->IsFinite(streams, at)) continue;
    for (int s = 0; s < streams.count; ++s) {
      sample->storage[s].push_back(buffer->values[s][at]);
    }
    sample->place.push_back(first + i);
  }
  const auto end = static_cast<int64_t>(sample->place.size());
  if (end == begin) return;
  sample->sampled_outside += outside;
  sample->tokens = end;
  sample->rows.push_back({sequence, begin, end});
}

}  // namespace

PairInput Sample::Pair(int x, int y) const {
  return {values(x), values(y), link(), weight.data(),
          static_cast<int64_t>(weight.size())};
}

Sample TakeSample(const Batch& batch, const Streams& streams) {
  Sample sample;
  const std::vector<int64_t> rows = ChooseRows(batch);
  int64_t positions = 0;
  for (const int64_t row : rows) {
    positions += batch.offsets[row + 1] - batch.offsets[row];
  }
  sample.is_whole = positions == batch.offsets[batch.num_sequences];
  // A filler that every function of the passes is defined for.
  constexpr float kFiller = -1.0f;
  const auto room = static_cast<size_t>(positions + 2 * kPassLanes + 1);
  for (int s = 0; s < streams.count; ++s) {
    sample.storage[s].reserve(room);
    sample.storage[s].push_back(kFiller);
  }
  sample.place.reserve(static_cast<size_t>(positions));
  Buffer buffer;
  for (const int64_t row : rows) AddRow(batch, streams, row, &buffer, &sample);
  const auto n = static_cast<size_t>((sample.tokens + kPassLanes - 1) /
                                     kPassLanes * kPassLanes);
  for (int s = 0; s < streams.count; ++s) {
    sample.storage[s].resize(1 + n + kPassLanes, kFiller);
  }
  sample.weight.assign(n, 0.0f);
  std::fill_n(sample.weight.begin(), sample.tokens, 1.0f);
  sample.link_storage.assign(1 + n, 0.0f);
  for (const SampledRow& row : sample.rows) {
    std::fill(sample.link_storage.begin() + 1 + row.begin,
              sample.link_storage.begin() + row.end, 1.0f);
  }
  return sample;
}

}  // namespace counterweight::kernels::doctor
