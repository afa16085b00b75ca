#include "server/observe/total.h"

#include <cmath>
#include <numeric>

namespace counterweight::server {

bool IsSpent(Addends addends, double total, double addend) {
  // Their sum would be rounded.
  if (addends == Addends::kCounts) return addend > 0x1p53 - total;
  return addend != 0 && std::fabs(total) > 0x1p40 &&
         std::fabs(addend) < std::fabs(total) * 0x1p-30;
}

void Total::Add(double amount) {
  if (!(amount > 0)) amount = 0;
  if (IsSpent(addends_, series_.Get().Value(), amount)) series_.Remove();
  series_.Get().Increment(amount);
}

void TotalHistogram::Add(std::span<const int64_t> counts, double sum) {
  if (!std::isfinite(sum)) sum = 0;
  const std::vector<double> increments(counts.begin(), counts.end());
  const double count =
      std::accumulate(increments.begin(), increments.end(), 0.0);
  if (IsSpent(Addends::kCounts, count_, count) ||
      IsSpent(Addends::kNumbers, sum_, sum)) {
    series_.Remove();
    count_ = sum_ = 0;
  }
  count_ += count;
  sum_ += sum;
  series_.Get(buckets_).ObserveMultiple(increments, sum);
}

}  // namespace counterweight::server
