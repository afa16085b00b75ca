#include "kernels/walk/selection.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/surrogates/list.h"

namespace counterweight::kernels {
namespace {

struct Candidate {
  int64_t position;  // in the batch, ascending by row, then position
  float key;
  uint64_t rank;
};

std::vector<Candidate> CandidatesOf(const LossSpec& loss, const Batch& batch,
                                    const std::vector<float>& keys) {
  const bool random = InfoOf(loss.surrogate).Has(kTraitSelectsAtRandom);
  std::vector<Candidate> candidates;
  candidates.reserve(keys.size());  // growing would take twice as much
  for (int64_t row = 0; row < batch.num_sequences; ++row) {
    const int64_t begin = batch.offsets[row];
    for (int64_t i = begin; i < batch.offsets[row + 1]; ++i) {
      const float key = keys[static_cast<size_t>(i)];
      if (random ? key == 0.0f : std::isinf(key) && key < 0.0f) continue;
      const uint64_t rank =
          random ? PhiloxRank(loss.seed, row, i - begin) : uint64_t{0};
      candidates.push_back({i, key, rank});
    }
  }
  return candidates;
}

bool Precedes(const Candidate& a, const Candidate& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  if (a.key != b.key) return a.key > b.key;
  return a.position < b.position;
}

}  // namespace

uint64_t PhiloxRank(uint64_t seed, int64_t row, int64_t position) {
  constexpr uint64_t kMultiplier0 = 0xd2511f53u;
  constexpr uint64_t kMultiplier1 = 0xcd9e8d57u;
  constexpr uint32_t kWeyl0 = 0x9e3779b9u;
  constexpr uint32_t kWeyl1 = 0xbb67ae85u;
  constexpr int kRounds = 10;
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto row_bits = static_cast<uint64_t>(row);
  const auto position_bits = static_cast<uint64_t>(position);
  std::array<uint32_t, 4> counter = {low(position_bits), high(position_bits),
                                     low(row_bits), high(row_bits)};
  uint32_t key0 = low(seed);
  uint32_t key1 = high(seed);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key0, low(product1),
               high(product0) ^ counter[3] ^ key1, low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return static_cast<uint64_t>(counter[1]) << 32 | counter[0];
}

std::vector<uint8_t> SelectTokens(const LossSpec& loss, const Batch& batch,
                                  const std::vector<float>& keys,
                                  int64_t tokens) {
  std::vector<Candidate> candidates = CandidatesOf(loss, batch, keys);
  const auto share = static_cast<int64_t>(loss.covariance_fraction *
                                          static_cast<double>(tokens));
  const int64_t wanted = std::min(std::max<int64_t>(share, 1),
                                  static_cast<int64_t>(candidates.size()));
  std::nth_element(candidates.begin(), candidates.begin() + wanted,
                   candidates.end(), Precedes);
  std::vector<uint8_t> selected(keys.size(), 0);
  for (int64_t i = 0; i < wanted; ++i) {
    selected[static_cast<size_t>(candidates[static_cast<size_t>(i)].position)] =
        1;
  }
  return selected;
}

int64_t SelectionScratchBytes(int64_t positions) {
  return positions * static_cast<int64_t>(sizeof(float) + sizeof(Candidate) +
                                          sizeof(uint8_t));
}

}  // namespace counterweight::kernels
