#include "kernels/doctor/row_match.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/math/bits.h"
#include "kernels/math/exp.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr int64_t kSketch = 24;
// Two log-probs of one token are nearer than that, most of the time.
constexpr float kFar = 0.3f;
// Comparisons of two rows in one call.
constexpr int64_t kMostComparisons = 1 << 17;

// The first tokens of a row. Zeros are missing numbers.
struct Sketch {
  const float* values;
  int64_t size;
};

Sketch SketchOf(const float* stream, const SampledRow& row) {
  return {stream + row.begin, std::min(row.size(), kSketch)};
}

// Tokens of some information; rows of nothing but certain tokens fit any other.
int64_t Telling(const Sketch& sketch) {
  int64_t count = 0;
  for (int64_t i = 0; i < sketch.size; ++i) {
    count += std::fabs(sketch.values[i]) > 0.1f;
  }
  return count;
}

// Tokens that do not fit, a token without a partner as half of one; stops above
// `most`.
double Misses(const Sketch& y, const Sketch& x, double most) {
  double misses = 0.0;
  for (int64_t i = 0; i < y.size && misses <= most; ++i) {
    if (y.values[i] == 0.0f) continue;
    if (i >= x.size || x.values[i] == 0.0f) {
      misses += 0.5;
    } else {
      misses += std::fabs(y.values[i] - x.values[i]) > kFar;
    }
  }
  return misses;
}

// The tokens of a row that do not fit its own row: 0 if too few.
int64_t OwnMisses(const Sketch& y, const Sketch& x) {
  int64_t bad = 0, seen = 0, early = 0;
  for (int64_t i = 0; i < y.size; ++i) {
    if (y.values[i] == 0.0f || x.values[i] == 0.0f) continue;
    const bool is_far = std::fabs(y.values[i] - x.values[i]) > kFar;
    ++seen;
    bad += is_far;
    early += is_far && i < 6;
  }
  const double least = std::max(4.0, 0.25 * static_cast<double>(seen));
  return static_cast<double>(bad) >= least && early >= 2 ? bad : 0;
}

// The row of the first stream that fits best, or -1.
int64_t BestOther(const Sample& sample, int64_t row, double most) {
  const Sketch y =
      SketchOf(sample.values(1), sample.rows[static_cast<size_t>(row)]);
  double least = std::numeric_limits<double>::infinity();
  int64_t best = -1;
  for (size_t other = 0; other < sample.rows.size(); ++other) {
    if (static_cast<int64_t>(other) == row) continue;
    const Sketch x = SketchOf(sample.values(0), sample.rows[other]);
    const double misses = Misses(y, x, std::min(most, least));
    if (misses > most || misses >= least) continue;
    least = misses;
    best = static_cast<int64_t>(other);
  }
  if (best < 0) return -1;
  const Sketch x =
      SketchOf(sample.values(0), sample.rows[static_cast<size_t>(best)]);
  return Telling(x) >= 3 ? best : -1;
}

// A sum: its terms do not wait for each other.
uint64_t HashOf(const float* x, const SampledRow& row) {
  uint64_t hash = static_cast<uint64_t>(row.size());
  for (int64_t i = row.begin; i < row.end; ++i) {
    const auto place = static_cast<uint64_t>(i - row.begin + 1);
    uint64_t mixed = (bits_of(x[i]) + place * 0x9e3779b97f4a7c15u);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    hash += mixed ^ (mixed >> 31);
  }
  return hash;
}

}  // namespace

Matches FindOtherRows(const Sample& sample) {
  Matches found;
  const auto rows = static_cast<int64_t>(sample.rows.size());
  const int64_t most =
      std::max<int64_t>(kMostComparisons / std::max<int64_t>(rows, 1), 16);
  for (int64_t row = 0; row < rows; ++row) {
    const SampledRow& at = sample.rows[static_cast<size_t>(row)];
    if (at.size() < 4) continue;
    const Sketch y = SketchOf(sample.values(1), at);
    const int64_t bad = OwnMisses(y, SketchOf(sample.values(0), at));
    if (bad == 0 || Telling(y) < 3) continue;
    ++found.unfit;
    if (found.tried == most) continue;
    ++found.tried;
    const int64_t other =
        BestOther(sample, row, 0.3 * static_cast<double>(bad));
    if (other >= 0) found.matches.push_back({row, other});
  }
  return found;
}

std::vector<int64_t> FindCopies(const Sample& sample, const RowFacts& facts) {
  const float* const x = sample.values(0);
  const auto rows = static_cast<double>(sample.rows.size());
  // ln(pairs of rows) + ln 1000.
  const double least = log64(std::max(rows, 2.0) * std::max(rows, 2.0) / 2.0) +
                       6.907755278982137;
  std::vector<std::pair<uint64_t, int64_t>> hashes;
  for (size_t row = 0; row < sample.rows.size(); ++row) {
    const SampledRow& at = sample.rows[row];
    const double surprise = -facts.rows[row].log_prob;
    if (at.size() < 4 || !(surprise > least)) continue;
    hashes.emplace_back(HashOf(x, at), static_cast<int64_t>(row));
  }
  std::sort(hashes.begin(), hashes.end());
  std::vector<int64_t> copies;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const bool as_before = i > 0 && hashes[i].first == hashes[i - 1].first;
    const bool as_after =
        i + 1 < hashes.size() && hashes[i].first == hashes[i + 1].first;
    if (as_before || as_after) copies.push_back(hashes[i].second);
  }
  std::sort(copies.begin(), copies.end());
  return copies;
}

}  // namespace counterweight::kernels::doctor
