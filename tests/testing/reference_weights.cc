#include "tests/testing/reference_weights.h"

#include <algorithm>
#include <cmath>

namespace counterweight::kernels {
namespace {

// Below it a mean is taken for zero and nothing is divided (WeightSpec).
constexpr double kSmallestMean = 1e-8;

double ClampRatio(double x, double limit) {
  return std::clamp(x, -limit, limit);
}

// level(clamp(l)) at each token.
std::vector<double> Aggregate(Level level, double token_clamp,
                              RatioSource source, const ReferenceRow& row,
                              const Mask& left) {
  std::vector<double> result(row.size(), 0.0);
  double sum = 0.0;
  int64_t count = 0;
  for (int64_t t = 0; t < row.size(); ++t) {
    const double l = ClampRatio(row.LogRatio(source, t), token_clamp);
    sum += left[t] ? l : 0.0;
    count += left[t];
    if (level == Level::kToken) result[t] = row.counts[t] ? l : 0.0;
    if (level == Level::kPrefix) result[t] = count == 0 ? 0.0 : sum / count;
  }
  if (level == Level::kSequence) result.assign(row.size(), sum);
  if (level == Level::kGeometric)
    result.assign(row.size(), count == 0 ? 0.0 : sum / count);
  if (level == Level::kTurn) {
    result = TurnMeansOf(row, [&](int64_t t) {
      return ClampRatio(row.LogRatio(source, t), token_clamp);
    });
  }
  return result;
}

double ApplyBound(const WeightSpec& weight, double w, Margin& margin) {
  const bool above = margin.Above(w, weight.upper);
  const bool below = margin.Below(w, weight.lower);
  switch (weight.bound) {
    case Bound::kNone:
      return w;
    case Bound::kTruncate:
      return above ? weight.upper : below ? weight.lower : w;
    case Bound::kMask:
      return above || below ? 0.0 : w;
  }
  return w;
}

}  // namespace

RowWeights WeighRow(const WeightSpec& weight, const ReferenceRow& row,
                    const Mask& left, Margin& margin) {
  RowWeights result;
  result.raw.assign(row.size(), 0.0);
  result.bounded.assign(row.size(), 0.0);
  const std::vector<double> clamped =
      Aggregate(weight.level, weight.token_clamp, weight.source, row, left);
  // At level TOKEN both clamps are the last one.
  result.log_ratio =
      weight.level == Level::kToken
          ? Aggregate(weight.level, kUnbounded, weight.source, row, left)
          : clamped;
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!row.counts[t]) continue;
    result.raw[t] = std::exp(ClampRatio(clamped[t], weight.aggregate_clamp));
    result.bounded[t] = ApplyBound(weight, result.raw[t], margin);
  }
  return result;
}

double Normalizer(const WeightSpec& weight,
                  const std::vector<ReferenceRow>& rows,
                  const std::vector<RowWeights>& weights, Margin& margin) {
  if (weight.level == Level::kNone || !weight.normalize) return 1.0;
  if (weight.given_mean > 0) return weight.given_mean;
  double sum = 0.0;
  int64_t count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t t = 0; t < rows[i].size(); ++t) {
      if (!rows[i].counts[t]) continue;
      sum += weights[i].bounded[t];
      count += 1;
      if (IsSequenceLevel(weight.level)) break;
    }
  }
  if (weight.counts_empty_rows && IsSequenceLevel(weight.level))
    count = static_cast<int64_t>(rows.size());
  const double mean = count == 0 ? 0.0 : sum / count;
  return margin.Above(mean, kSmallestMean) ? mean : 1.0;
}

}  // namespace counterweight::kernels
