#include "server/engine/bounded_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace counterweight::server {
namespace {

using kernels::kHistogramEdges;
using kernels::kNumHistogramEdges;

// A share by which float32 and the order of addition may leave a bound.
constexpr double kRounding = 1e-5;

double K3(double log_ratio) { return std::expm1(log_ratio) - log_ratio; }

// Bounds of what one token in a bucket adds, or all of a histogram; within 20
// nats.
struct Bounds {
  double low = 0;   // of log ratios
  double high = 0;  // of log ratios
  double size = 0;  // of log ratios without their signs
  double most_k3 = 0;
  double most_ppl_ratio = 0;  // of exp(-log ratio)
};

using Buckets = std::array<Bounds, kNumHistogramEdges + 1>;

const Buckets& OfBuckets() {
  static const Buckets buckets = [] {
    Buckets all;
    double low = -kernels::kSafetyClamp;
    for (int b = 0; b <= kNumHistogramEdges; ++b) {
      const double high = b == kNumHistogramEdges
                              ? kernels::kSafetyClamp
                              : static_cast<double>(kHistogramEdges[b]);
      all[static_cast<size_t>(b)] = {
          .low = low,
          .high = high,
          .size = std::max(std::fabs(low), std::fabs(high)),
          .most_k3 = std::max(K3(low), K3(high)) * (1 + kRounding),
          .most_ppl_ratio = std::exp(-low) * (1 + kRounding)};
      low = high;
    }
    return all;
  }();
  return buckets;
}

Bounds BoundsOf(const LogRatioHistogram& histogram) {
  Bounds sum;
  for (size_t b = 0; b < OfBuckets().size(); ++b) {
    const Bounds& bucket = OfBuckets()[b];
    const auto count = static_cast<double>(histogram[b]);
    sum.low += count * bucket.low;
    sum.high += count * bucket.high;
    sum.size += count * bucket.size;
    sum.most_k3 += count * bucket.most_k3;
    sum.most_ppl_ratio += count * bucket.most_ppl_ratio;
  }
  return sum;
}

}  // namespace

double BoundedLogRatio(double sum, const LogRatioHistogram& histogram) {
  const Bounds range = BoundsOf(histogram);
  return std::clamp(sum, range.low, range.high);
}

double BoundedK3(double sum, const LogRatioHistogram& histogram) {
  return std::clamp(sum, 0.0, BoundsOf(histogram).most_k3);
}

double BoundedPplRatio(double sum, const LogRatioHistogram& histogram) {
  return std::clamp(sum, 0.0, BoundsOf(histogram).most_ppl_ratio);
}

bool MayHaveLogRatio(double sum, const LogRatioHistogram& histogram) {
  const Bounds range = BoundsOf(histogram);
  const double spare = kRounding * range.size;
  return (histogram[0] > 0 || sum >= range.low - spare) &&
         (histogram[kNumHistogramEdges] > 0 || sum <= range.high + spare);
}

bool MayHaveK3(double sum, const LogRatioHistogram& histogram) {
  return histogram[0] > 0 || histogram[kNumHistogramEdges] > 0 ||
         sum <= BoundsOf(histogram).most_k3;
}

double BoundedK3(double sum, int64_t tokens) {
  return std::clamp(sum, 0.0,
                    static_cast<double>(tokens) * K3(kernels::kSafetyClamp));
}

double BoundedStaleness(const PublishedSums::Staleness& staleness) {
  double low = 0;
  double high = 0;
  for (int b = 0; b <= kernels::kNumStalenessEdges; ++b) {
    const auto count = static_cast<double>(staleness.histogram[b]);
    // Staleness is a whole number, and buckets have their upper edge.
    const double lowest =
        b == 0 ? 0 : static_cast<double>(kernels::kStalenessEdges[b - 1]) + 1;
    const double highest =
        b == kernels::kNumStalenessEdges
            ? kMostStaleness
            : static_cast<double>(kernels::kStalenessEdges[b]);
    low += count * lowest;
    high += count * highest;
  }
  return std::clamp(staleness.staleness, low, high);
}

double Finite(double sum) {
  constexpr double kMost = 1e30;
  return std::isnan(sum) ? sum : std::clamp(sum, -kMost, kMost);
}

}  // namespace counterweight::server
