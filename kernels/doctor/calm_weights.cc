#include "kernels/doctor/calm_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/doctor/sample.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr int kMiddle = kQuarterOctaves;
constexpr int kSmallestExponent = -15;

// ends[i] = 2^(i / 4 - 15): exact products, so the same bits everywhere.
using Ends = std::array<double, kQuarterOctaves + 1>;

Ends MakeEnds() {
  // 2^0, 2^(1/4), 2^(1/2), 2^(3/4).
  constexpr double kQuarters[] = {1.0, 0x1.306fe0a31b715p+0,
                                  0x1.6a09e667f3bcdp+0, 0x1.ae89f995ad3adp+0};
  Ends ends;
  for (int i = 0; i <= kQuarterOctaves; ++i) {
    ends[static_cast<size_t>(i)] =
        std::ldexp(kQuarters[i % 4], kSmallestExponent + i / 4);
  }
  return ends;
}

const Ends& AllEnds() {
  static const Ends ends = MakeEnds();
  return ends;
}

// Numerator and denominator.
std::pair<InputRole, InputRole> RolesOf(RatioSource source) {
  // A weight has one of three sources.
  if (source == RatioSource::kOldRollout) {
    return {InputRole::kOld, InputRole::kRollout};
  }
  return {InputRole::kCurrent, source == RatioSource::kCurrentOld
                                   ? InputRole::kOld
                                   : InputRole::kRollout};
}

// Adds the weights of one row's log ratios.
class RowCounter {
 public:
  RowCounter(const WeightSpec& spec, WeightCounts* counts)
      : spec_(spec), counts_(*counts) {}

  void Add(const float* numerator, const float* denominator, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      // As the walk has it: a float's difference.
      const double l =
          Clamped(numerator[i] - denominator[i], spec_.token_clamp);
      sum += l;
      if (spec_.level == Level::kToken) Count(l);
      if (spec_.level == Level::kPrefix) {
        Count(sum / static_cast<double>(i + 1));
      }
    }
    if (spec_.level == Level::kSequence) Count(sum);
    if (spec_.level == Level::kGeometric) Count(sum / static_cast<double>(n));
  }

 private:
  static double Clamped(double x, double clamp) {
    return std::clamp(x, -clamp, clamp);
  }

  void Count(double a) {
    const int bucket = BucketOf(Clamped(a, spec_.aggregate_clamp));
    ++counts_[static_cast<size_t>(bucket)];
  }

  const WeightSpec& spec_;
  WeightCounts& counts_;
};

}  // namespace

double EndOf(int bucket) {
  return AllEnds()[static_cast<size_t>(std::abs(bucket - kMiddle))];
}

int BucketOf(double a) {
  const Ends& ends = AllEnds();
  const auto end = std::lower_bound(ends.begin(), ends.end(), std::abs(a));
  const int distance =
      std::min(static_cast<int>(end - ends.begin()), kQuarterOctaves);
  return a < 0.0 ? kMiddle - distance : kMiddle + distance;
}

WeightCounts CountWeights(const Batch& batch, const WeightSpec& spec) {
  const auto [numerator, denominator] = RolesOf(spec.source);
  Streams streams;
  for (const InputRole role : {numerator, denominator}) {
    streams.roles[streams.count] = role;
    streams.tensors[streams.count] = batch.tensor(role);
    ++streams.count;
  }
  const Sample sample = TakeSample(batch, streams);
  WeightCounts counts{};
  RowCounter counter(spec, &counts);
  for (const SampledRow& row : sample.rows) {
    const int64_t length =
        batch.offsets[row.sequence + 1] - batch.offsets[row.sequence];
    // The sample has a part of such a row.
    if (length > kMostExamined && spec.level != Level::kToken) continue;
    counter.Add(sample.values(0) + row.begin, sample.values(1) + row.begin,
                row.size());
  }
  return counts;
}

int64_t NumWeights(const WeightCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

double MeanSquare(const WeightCounts& counts) {
  double squares = 0.0;
  for (int bucket = 0; bucket < kWeightBuckets; ++bucket) {
    const double end = EndOf(bucket);
    squares +=
        static_cast<double>(counts[static_cast<size_t>(bucket)]) * end * end;
  }
  const int64_t n = NumWeights(counts);
  return n == 0 ? 0.0 : squares / static_cast<double>(n);
}

double LogQuantile(const WeightCounts& counts, double quantile) {
  const double wanted = quantile * static_cast<double>(NumWeights(counts));
  int64_t below = 0;
  int bucket = 0;
  for (; bucket < kWeightBuckets - 1; ++bucket) {
    below += counts[static_cast<size_t>(bucket)];
    if (static_cast<double>(below) >= wanted) break;
  }
  return EndOf(std::max(bucket, kMiddle));
}

}  // namespace counterweight::kernels::doctor
