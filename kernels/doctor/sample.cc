#include "kernels/doctor/sample.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
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

// The positions of a row that count, as offsets from its first.
class Picked {
 public:
  // Returns the positions outside the mask where the first stream is finite and
  // not 0.
  int64_t Pick(const Batch& batch, const Streams& streams, int64_t first,
               int64_t n) {
    positions_.resize(static_cast<size_t>(n));
    count_ = 0;
    int64_t outside = 0;
    for (int64_t begin = 0; begin < n; begin += kPiece) {
      outside +=
          PickPiece(batch, streams, first, begin, std::min(begin + kPiece, n));
    }
    return outside;
  }

  int64_t count() const { return count_; }
  const int32_t* begin() const { return positions_.data(); }

 private:
  static constexpr int64_t kPiece = 1024;

  int64_t PickPiece(const Batch& batch, const Streams& streams, int64_t first,
                    int64_t begin, int64_t end) {
    float values[kMostStreams][kPiece];
    float no_number[kPiece] = {};  // 0, or NaN
    const auto n = static_cast<size_t>(end - begin);
    for (int s = 0; s < streams.count; ++s) {
      Read(streams.tensors[s], first + begin, end - begin, values[s]);
      for (size_t i = 0; i < n; ++i)
        no_number[i] += values[s][i] - values[s][i];
    }
    const uint8_t* const mask = batch.response_mask + first + begin;
    int32_t left_out = 0;
    for (size_t i = 0; i < n; ++i) {
      left_out += (mask[i] == 0) | (no_number[i] != 0.0f);
    }
    int32_t* const to = positions_.data() + count_;
    if (left_out == 0) {
      std::iota(to, to + n, static_cast<int32_t>(begin));
      count_ += static_cast<int64_t>(n);
      return 0;
    }
    int64_t outside = 0;
    size_t count = 0;
    for (size_t i = 0; i < n; ++i) {
      to[count] = static_cast<int32_t>(begin + static_cast<int64_t>(i));
      count += (mask[i] != 0) & (no_number[i] == 0.0f);
      const float value = values[0][i];
      outside += (mask[i] == 0) & is_finite(value) & (value != 0.0f);
    }
    count_ += static_cast<int64_t>(count);
    return outside;
  }

  std::vector<int32_t> positions_;
  int64_t count_ = 0;
};

// The row's values are read to `buffer`, or picked from it.
void AddRow(const Batch& batch, const Streams& streams, int64_t sequence,
            Picked* picked, std::vector<float>* buffer, Sample* sample) {
  const int64_t first = batch.offsets[sequence];
  const int64_t n =
      std::min(batch.offsets[sequence + 1] - first, kMostExamined);
  const int64_t outside = picked->Pick(batch, streams, first, n);
  const int64_t count = picked->count();
  if (count == 0) return;
  const int64_t begin = sample->tokens;
  const int32_t* const positions = picked->begin();
  buffer->resize(static_cast<size_t>(n));
  for (int s = 0; s < streams.count; ++s) {
    float* const to = sample->storage[s].data() + 1 + begin;
    if (count == n) {
      Read(streams.tensors[s], first, n, to);
      continue;
    }
    Read(streams.tensors[s], first, n, buffer->data());
    for (int64_t i = 0; i < count; ++i) to[i] = (*buffer)[positions[i]];
  }
  int64_t* const places = sample->place.data() + begin;
  for (int64_t i = 0; i < count; ++i) places[i] = first + positions[i];
  sample->sampled_outside += outside;
  sample->tokens += count;
  sample->rows.push_back({sequence, begin, begin + count});
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
    positions +=
        std::min(batch.offsets[row + 1] - batch.offsets[row], kMostExamined);
  }
  // A filler that every function of the passes is defined for.
  constexpr float kFiller = -1.0f;
  const auto room = static_cast<size_t>(positions + 2 * kPassLanes + 1);
  for (int s = 0; s < streams.count; ++s) {
    sample.storage[s].assign(room, kFiller);
  }
  sample.place.resize(static_cast<size_t>(positions));
  Picked picked;
  std::vector<float> buffer;
  for (const int64_t row : rows) {
    AddRow(batch, streams, row, &picked, &buffer, &sample);
  }
  const auto n = static_cast<size_t>((sample.tokens + kPassLanes - 1) /
                                     kPassLanes * kPassLanes);
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
