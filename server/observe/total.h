// Counters and histograms over batches which no batch can stop.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_TOTAL_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_TOTAL_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "server/observe/metrics.h"
#include "server/observe/series.h"

namespace counterweight::server {

// A total that is so large that it cannot take its next addend begins again
// with that, as after a restart of the process, which rate() and increase()
// expect of any counter.
enum class Addends : uint8_t {
  kCounts,   // kept to the last one: below 2^53
  kNumbers,  // kept to a share of 2^-22 of each, beyond 2^40
};

// True if `total` cannot take `addend`; both have a sign.
bool IsSpent(Addends addends, double total, double addend);

// One series of a counter. Not thread-safe.
class Total {
 public:
  Total(Family<Counter>& family, prometheus::Labels labels, Addends addends)
      : series_(family, std::move(labels)), addends_(addends) {}

  // An amount that is not above 0, as NaN, adds nothing.
  void Add(double amount);

 private:
  Series<Counter> series_;
  const Addends addends_;
};

// One series of a histogram. Not thread-safe.
class TotalHistogram {
 public:
  // `buckets` outlive this.
  TotalHistogram(Family<Histogram>& family, prometheus::Labels labels,
                 const std::vector<double>& buckets)
      : series_(family, std::move(labels)), buckets_(buckets) {}

  // Shows the series before the first batch.
  void Show() { series_.Get(buckets_); }
  // `counts` are by bucket, `sum` is over all of them; one that is not finite
  // adds 0.
  void Add(std::span<const int64_t> counts, double sum);

 private:
  Series<Histogram> series_;
  const std::vector<double>& buckets_;
  double count_ = 0;  // of the series, as the next
  double sum_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_TOTAL_H_
