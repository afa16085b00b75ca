// Exact sums of columns, several of which one register holds.
#ifndef COUNTERWEIGHT_KERNELS_WALK_EXACT_COLUMNS_H_
#define COUNTERWEIGHT_KERNELS_WALK_EXACT_COLUMNS_H_

#include <cstdint>

#include "kernels/math/exact_sum.h"
#include "kernels/tile/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Registers of so many columns.
constexpr int RegistersOf(int columns) {
  return (columns + kWideLanes - 1) / kWideLanes;
}

// The `index`-th register of so many sums, 0 where it is beyond them.
COUNTERWEIGHT_HD WideVec register_of(const double* sums, int index,
                                     int columns) {
  const int first = index * kWideLanes;
  const int left = columns - first;
  if (left >= kWideLanes) return load<WideVec>(&sums[first]);
  WideVec x{};
  for (int i = 0; i < left; ++i) x[i] = sums[first + i];
  return x;
}

// The sums of up to kMost registers, of which kMostExact have bins. Trivial, so
// that it may lie in raw memory.
template <int kMost, int kMostExact = kMost>
class ExactRegisters {
 public:
  // Makes the sums of `count` registers 0. needs_bins(i): register i holds
  // other numbers than whole ones, which are exact in any order.
  template <class NeedsBins>
  void begin(int count, NeedsBins needs_bins) {
    num_exact_ = num_whole_ = num_addends_ = 0;
    for (int i = 0; i < count; ++i) {
      if (needs_bins(i)) {
        bins_[num_exact_].clear();
        exact_at_[num_exact_++] = static_cast<uint8_t>(i);
      } else {
        whole_[num_whole_] = WideVec{};
        whole_at_[num_whole_++] = static_cast<uint8_t>(i);
      }
    }
  }

  // Adds at(i) to register i's sum.
  template <class At>
  COUNTERWEIGHT_HD void add(At at) {
    add_each<1>([&](int i, int) { return at(i); });
  }

  // Adds at(i, 0) to at(i, kCount - 1).
  template <int kCount, class At>
  COUNTERWEIGHT_HD void add_each(At at) {
    make_room(kCount);
    for (int n = 0; n < num_whole_; ++n) {
      COUNTERWEIGHT_UNROLL
      for (int a = 0; a < kCount; ++a) whole_[n] += at(whole_at_[n], a);
    }
    for (int n = 0; n < num_exact_; ++n) {
      WideVec x[kCount];
      COUNTERWEIGHT_UNROLL
      for (int a = 0; a < kCount; ++a) x[a] = at(exact_at_[n], a);
      bins_[n].add_each(x);
    }
  }

  // Adds the sums of `from`, which began as this did.
  void merge(ExactRegisters& from) {
    from.carry();
    make_room(1);
    for (int n = 0; n < num_whole_; ++n) whole_[n] += from.whole_[n];
    for (int n = 0; n < num_exact_; ++n) bins_[n].merge(from.bins_[n]);
  }

  // Calls put(i, sum) for each register's.
  template <class Put>
  void take(Put put) {
    for (int n = 0; n < num_whole_; ++n) put(whole_at_[n], whole_[n]);
    for (int n = 0; n < num_exact_; ++n) put(exact_at_[n], bins_[n].take());
  }

  // Calls put(c, bins) for each of `columns`. A register holds kWideLanes of
  // them.
  template <class Put>
  void take_bins(int columns, Put put) {
    carry();
    for_each_sum([&](int i, const auto& lane_bins) {
      for (int lane = 0; lane < kWideLanes; ++lane) {
        const int c = i * kWideLanes + lane;
        if (c >= columns) return;
        ExactBins<double> bins = lane_bins(lane);
        put(c, bins);
      }
    });
  }

  // Calls put(i, bins of the sum over the register's lanes).
  template <class Put>
  void take_bins_of_lanes(Put put) {
    carry();
    for_each_sum([&](int i, const auto& lane_bins) {
      ExactBins<double> bins;
      bins.clear();
      for (int lane = 0; lane < kWideLanes; ++lane) bins.merge(lane_bins(lane));
      put(i, bins);
    });
  }

  // The same, put(i, sum over the register's lanes).
  template <class Put>
  void take_lanes(Put put) {
    carry();
    for (int n = 0; n < num_whole_; ++n) {
      double sum = 0.0;
      for (int i = 0; i < kWideLanes; ++i) sum += whole_[n][i];
      put(whole_at_[n], sum);
    }
    for (int n = 0; n < num_exact_; ++n) {
      ExactBins<double> bins;
      bins.clear();
      for (int i = 0; i < kWideLanes; ++i) bins.merge(lane_of(bins_[n], i));
      put(exact_at_[n], bins.take());
    }
  }

 private:
  static_assert(kMost <= 256);

  static ExactBins<double> lane_of(const ExactBins<WideVec>& bins, int lane) {
    ExactBins<double> one;
    for (int k = 0; k < kBins; ++k) one.low[k] = bins.low[k][lane];
    one.has_high = bins.has_high;
    for (int k = 0; one.has_high && k < kHighBins; ++k) {
      one.high[k] = bins.high[k][lane];
    }
    return one;
  }

  // Calls f(i, bins of a lane) for each register.
  template <class F>
  void for_each_sum(F f) const {
    for (int n = 0; n < num_whole_; ++n) {
      f(whole_at_[n], [&](int lane) {
        ExactBins<double> bins;
        bins.clear();
        bins.add(whole_[n][lane]);
        return bins;
      });
    }
    for (int n = 0; n < num_exact_; ++n) {
      f(exact_at_[n], [&](int lane) { return lane_of(bins_[n], lane); });
    }
  }

  // Before so many addends.
  void make_room(int addends) {
    if (num_addends_ + addends > kMostAddends) carry();
    num_addends_ += addends;
  }
  void carry() {
    for (int n = 0; n < num_exact_; ++n) bins_[n].carry();
    num_addends_ = 1;
  }

  int num_addends_;
  int num_whole_;
  int num_exact_;
  uint8_t whole_at_[kMost];
  uint8_t exact_at_[kMostExact];
  WideVec whole_[kMost];
  ExactBins<WideVec> bins_[kMostExact];
};

// out[c] = the exact sum of sums_at(0)[c] to sums_at(count - 1)[c], rounded
// once, for each of `columns`. `out` may be among the addends.
template <class SumsAt>
COUNTERWEIGHT_HD void add_up(int columns, int64_t count, SumsAt sums_at,
                             double* out) {
  for (int i = 0; i < RegistersOf(columns); ++i) {
    ExactBins<WideVec> bins;
    bins.clear();
    for (int64_t n = 0; n < count; ++n) {
      bins.add(register_of(sums_at(n), i, columns));
      if ((n + 1) % kMostAddends == 0) bins.carry();
    }
    const WideVec sum = bins.take();
    const int first = i * kWideLanes;
    for (int lane = 0; lane < kWideLanes && first + lane < columns; ++lane) {
      out[first + lane] = sum[lane];
    }
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_EXACT_COLUMNS_H_
