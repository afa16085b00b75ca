// Drift by staleness within the CPU's walk: each tile adds its tokens to the
// sums of their ranges of staleness.
#ifndef COUNTERWEIGHT_KERNELS_WALK_STALENESS_WALK_H_
#define COUNTERWEIGHT_KERNELS_WALK_STALENESS_WALK_H_

#include <cstdint>

#include "kernels/math/exact_sum.h"
#include "kernels/policy_versions.h"
#include "kernels/staleness_sums.h"
#include "kernels/tile/tile_state.h"
#include "kernels/walk/staleness_places.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The sums of a tile's lanes: lanes become float64 and fold by halving.
COUNTERWEIGHT_HD double fold_tile(const float (&lanes)[kLanes]) {
  double sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = static_cast<double>(lanes[i]);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// The sums over the tokens of each range in a segment: its tiles' in order.
struct StalenessSegment {
  double log_ratio[kNumStalenessBuckets];
  double k3[kNumStalenessBuckets];
  uint32_t used;  // bit b: range b has tokens

  COUNTERWEIGHT_HD void clear() {
    used = 0;
    for (int b = 0; b < kNumStalenessBuckets; ++b) log_ratio[b] = k3[b] = 0.0;
  }
  COUNTERWEIGHT_HD void add(int bucket, double l, double k3_of_tile) {
    used |= 1u << bucket;
    log_ratio[bucket] += l;
    k3[bucket] += k3_of_tile;
  }
};

// The sums over segments, exact. Trivial, so that it may lie in raw memory.
struct StalenessTotals {
  ExactBins<double> log_ratio[kNumStalenessBuckets];
  ExactBins<double> k3[kNumStalenessBuckets];
  int32_t addends;
  bool is_bad;  // some version is out of its range; the sums are meaningless
  int64_t tokens[kNumStalenessBuckets];
  int64_t unknown;
  int64_t histogram[kNumStalenessEdges + 1];
  double staleness;
  int64_t most;

  void clear() {
    addends = 0;
    is_bad = false;
    unknown = most = 0;
    staleness = 0.0;
    for (int b = 0; b < kNumStalenessBuckets; ++b) {
      log_ratio[b].clear();
      k3[b].clear();
      tokens[b] = 0;
    }
    for (int64_t& count : histogram) count = 0;
  }

  void add(const StalenessSegment& segment) {
    for (int b = 0; b < kNumStalenessBuckets; ++b) {
      if ((segment.used >> b & 1u) == 0) continue;
      log_ratio[b].add(segment.log_ratio[b]);
      k3[b].add(segment.k3[b]);
    }
    count_addend();
  }

  void merge(StalenessTotals& from) {
    for (int b = 0; b < kNumStalenessBuckets; ++b) {
      from.log_ratio[b].carry();
      from.k3[b].carry();
      log_ratio[b].merge(from.log_ratio[b]);
      k3[b].merge(from.k3[b]);
      tokens[b] += from.tokens[b];
    }
    count_addend();
    is_bad = is_bad || from.is_bad;
    unknown += from.unknown;
    for (int h = 0; h <= kNumStalenessEdges; ++h) {
      histogram[h] += from.histogram[h];
    }
    staleness += from.staleness;
    most = from.most > most ? from.most : most;
  }

 private:
  void count_addend() {
    if (++addends < kMostAddends) return;
    for (int b = 0; b < kNumStalenessBuckets; ++b) {
      log_ratio[b].carry();
      k3[b].carry();
    }
    addends = 1;
  }
};

class StalenessWalk;

#ifndef COUNTERWEIGHT_ONE_LANE
// The versions of one segment after the other of a row, and their sums.
class StalenessWalk {
 public:
  // `versions` and `totals` must outlive it. REQUIRES: 0 <= trained <
  // INT32_MAX.
  StalenessWalk(const PolicyVersions& versions, StalenessTotals* totals)
      : versions_(versions), totals_(*totals) {}

  // Positions of the batch.
  void begin_segment(int64_t row, int64_t row_begin, int64_t begin) {
    row_ = row;
    row_begin_ = row_begin;
    segment_.clear();
    if (versions_.of_positions == nullptr) seek(begin - row_begin);
  }
  void end_segment() { totals_.add(segment_); }

  // Adds a tile, in which masked tokens have log ratios and k3 of 0.
  template <class Lanes>
  __attribute__((noinline)) void add_tile(const TileState<Lanes>& s,
                                          RatioSource source) {
    read(s.position, s.count);
    Staleness found = compare(s);
    totals_.is_bad = totals_.is_bad || found.is_bad;
    totals_.unknown += found.unknown;
    if (found.is_bad || found.highest < 0) return;
    totals_.most = found.highest > totals_.most ? found.highest : totals_.most;
    totals_.staleness += found.sum;
    const TileOf<Lanes>& log_ratio = s.log_ratio[static_cast<int>(source)];
    const TileOf<Lanes>& k3 = s.k3[static_cast<int>(source)];
    const int first = kStalenessPlaces.bucket_of(found.lowest);
    const int last = kStalenessPlaces.bucket_of(found.highest);
    // Mostly all of a tile's tokens are of one range; others add +0.0.
    if (first == last && found.unknown == 0) {
      add_all<Lanes>(first, s.steps, found.known, log_ratio, k3);
    } else {
      for (int b = first; b <= last; ++b) {
        add_bucket<Lanes>(b, s.steps, log_ratio, k3);
      }
    }
    const int begin = kStalenessPlaces.histogram_of(found.lowest);
    const int end = kStalenessPlaces.histogram_of(found.highest);
    if (begin == end) {
      totals_.histogram[begin] += found.known;
      return;
    }
    for (int h = begin; h <= end; ++h) {
      totals_.histogram[h] += count_in(
          s.steps,
          h == 0 ? 0 : static_cast<int32_t>(kStalenessEdges[h - 1]) + 1,
          h == kNumStalenessEdges ? INT32_MAX
                                  : static_cast<int32_t>(kStalenessEdges[h]));
    }
  }

 private:
  static constexpr int kGroups = kLanes / kVecLanes;
  static constexpr int32_t kUnknownVersion = -1;

  struct Staleness {
    int32_t lowest, highest;  // of the known; highest -1: there is none
    int64_t known, unknown;   // tokens
    double sum;
    bool is_bad;
  };

  static BitsVec splat_bits(int32_t x) { return x - BitsVec{}; }

  // Finds the first span of the row that ends behind the token.
  void seek(int64_t token) {
    int64_t low = 0, high = versions_.num_spans;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const VersionSpan& span = versions_.spans[middle];
      const bool is_before =
          span.sequence < row_ || (span.sequence == row_ && span.end <= token);
      if (is_before) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    next_span_ = low;
  }

  // Each version is read once: the memory may be the client's, and change.
  void read(int64_t position, int count) {
    for (int i = count / kVecLanes * kVecLanes; i < kTilePositions; ++i) {
      of_tile_[i] = kUnknownVersion;
    }
    if (versions_.of_positions != nullptr) {
      __builtin_memcpy(of_tile_,
                       static_cast<const char*>(versions_.of_positions) +
                           position * static_cast<int64_t>(sizeof(int32_t)),
                       static_cast<size_t>(count) * sizeof(int32_t));
      return;
    }
    for (int i = 0; i < count; ++i) of_tile_[i] = kUnknownVersion;
    const int64_t first = position - row_begin_;
    while (next_span_ < versions_.num_spans) {
      const VersionSpan& span = versions_.spans[next_span_];
      if (span.sequence != row_ || span.start >= first + count) return;
      const int64_t from = span.start > first ? span.start - first : 0;
      const int64_t to = span.end < first + count ? span.end - first : count;
      const int32_t version = span.version <= versions_.trained
                                  ? static_cast<int32_t>(span.version)
                                  : INT32_MAX;
      for (int64_t i = from; i < to; ++i) of_tile_[i] = version;
      if (span.end > first + count) return;
      ++next_span_;
    }
  }

  // Stores the staleness of each token that counts and has a known version, -1
  // for others.
  template <class Lanes>
  Staleness compare(const TileState<Lanes>& s) {
    const BitsVec trained = splat_bits(static_cast<int32_t>(versions_.trained));
    const BitsVec none = splat_bits(kUnknownVersion);
    BitsVec lowest = splat_bits(INT32_MAX);
    BitsVec highest = none;
    BitsVec sum{};
    BitsVec num_known{};
    BitsVec num_unknown{};
    BitsVec bad{};
    for_each_group<kLanes>(s.steps, [&](int k, int g) {
      const int at = k * kLanes + g * kVecLanes;
      const auto v = load<BitsVec>(&of_tile_[at]);
      const BitsVec counts =
          reinterpret_cast<BitsVec>(s.mask.vec(k, g)) != BitsVec{};
      const BitsVec known = counts & (v > none);
      num_known -= known;
      num_unknown -= counts & (v == none);
      bad |= counts & ((v < none) | (v > trained));
      const BitsVec staleness = ((trained - v) & known) | ~known;
      const BitsVec for_lowest = staleness & INT32_MAX;
      lowest = for_lowest < lowest ? for_lowest : lowest;
      highest = staleness > highest ? staleness : highest;
      sum += staleness & known;
      store(staleness, &staleness_[at]);
    });
    Staleness found{INT32_MAX, kUnknownVersion, 0, 0, 0.0, false};
    int64_t total = 0;
    for (int i = 0; i < kVecLanes; ++i) {
      found.lowest = lowest[i] < found.lowest ? lowest[i] : found.lowest;
      found.highest = highest[i] > found.highest ? highest[i] : found.highest;
      found.known += num_known[i];
      found.unknown += num_unknown[i];
      found.is_bad = found.is_bad || bad[i] != 0;
      total += sum[i];
    }
    // Larger ones may overflow a lane.
    if (found.highest >= 1 << 22) total = sum_slowly(s.steps);
    found.sum = static_cast<double>(total);
    return found;
  }

  int64_t sum_slowly(int steps) const {
    int64_t sum = 0;
    for (int i = 0; i < steps * kLanes; ++i) {
      if (staleness_[i] > 0) sum += staleness_[i];
    }
    return sum;
  }

  template <class Lanes>
  void add_all(int bucket, int steps, int64_t count,
               const TileOf<Lanes>& log_ratio, const TileOf<Lanes>& k3) {
    float log_ratios[kLanes];
    float k3s[kLanes];
    for (int g = 0; g < kGroups; ++g) {
      Vec l{};
      Vec k3_sum{};
      for (int k = 0; k < steps; ++k) {
        l += log_ratio.vec(k, g);
        k3_sum += k3.vec(k, g);
      }
      store(l, &log_ratios[g * kVecLanes]);
      store(k3_sum, &k3s[g * kVecLanes]);
    }
    totals_.tokens[bucket] += count;
    segment_.add(bucket, fold_tile(log_ratios), fold_tile(k3s));
  }

  template <class Lanes>
  void add_bucket(int bucket, int steps, const TileOf<Lanes>& log_ratio,
                  const TileOf<Lanes>& k3) {
    const StalenessRange& range = kStalenessBuckets[bucket];
    const BitsVec first = splat_bits(static_cast<int32_t>(range.first));
    const BitsVec last = splat_bits(
        range.last == kOpenEnd ? INT32_MAX : static_cast<int32_t>(range.last));
    float log_ratios[kLanes];
    float k3s[kLanes];
    BitsVec tokens{};
    for (int g = 0; g < kGroups; ++g) {
      Vec l{};
      Vec k3_sum{};
      for (int k = 0; k < steps; ++k) {
        const auto x = load<BitsVec>(&staleness_[k * kLanes + g * kVecLanes]);
        const BitsVec is_in = (x >= first) & (x <= last);
        l += chosen(log_ratio.vec(k, g), is_in);
        k3_sum += chosen(k3.vec(k, g), is_in);
        tokens -= is_in;
      }
      store(l, &log_ratios[g * kVecLanes]);
      store(k3_sum, &k3s[g * kVecLanes]);
    }
    int64_t count = 0;
    for (int i = 0; i < kVecLanes; ++i) count += tokens[i];
    if (count == 0) return;
    totals_.tokens[bucket] += count;
    segment_.add(bucket, fold_tile(log_ratios), fold_tile(k3s));
  }

  int64_t count_in(int steps, int32_t first, int32_t last) const {
    const BitsVec from = splat_bits(first);
    const BitsVec to = splat_bits(last);
    BitsVec found{};
    for_each_group<kLanes>(steps, [&](int k, int g) {
      const auto x = load<BitsVec>(&staleness_[k * kLanes + g * kVecLanes]);
      found -= (x >= from) & (x <= to);
    });
    int64_t count = 0;
    for (int i = 0; i < kVecLanes; ++i) count += found[i];
    return count;
  }

  static Vec chosen(Vec x, BitsVec where) {
    return reinterpret_cast<Vec>(reinterpret_cast<BitsVec>(x) & where);
  }

  const PolicyVersions& versions_;
  StalenessTotals& totals_;
  int64_t row_ = 0;
  int64_t row_begin_ = 0;
  int64_t next_span_ = 0;
  StalenessSegment segment_{};
  COUNTERWEIGHT_ALIGNED int32_t of_tile_[kTilePositions];
  COUNTERWEIGHT_ALIGNED int32_t staleness_[kTilePositions];
};
#endif

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_STALENESS_WALK_H_
