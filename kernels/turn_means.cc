#include "kernels/turn_means.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/exp.h"
#include "kernels/rules/estimators.h"
#include "kernels/tile/tile_state.h"
#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

double Clamped(double x, double clamp) { return std::clamp(x, -clamp, clamp); }

// The estimator's number of a token with these log-probs and log ratio.
double Estimate(const TurnStatistic& of, double numerator, double denominator,
                double log_ratio) {
  const double l = Clamped(log_ratio, of.token_clamp);
  switch (of.estimator) {
    case Estimator::kRatio:
      return l;
    case Estimator::kK2:
      return 0.5 * l * l;
    case Estimator::kK3:
      return expm1_64(l) - l;
    case Estimator::kBinaryKl:
      return BinaryKlEstimator::statistic(numerator, denominator);
    case Estimator::kTotalVariation:
      return TotalVariationEstimator::statistic(numerator, denominator);
    case Estimator::kDifference:
      return DifferenceEstimator::statistic(numerator, denominator);
    case Estimator::kReverseK3:
      return ReverseK3Estimator::statistic(numerator, denominator);
  }
  return 0.0;
}

float Rounded(double mean, const TurnStatistic& of) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(
      Clamped(Clamped(mean, of.aggregate_clamp), kLargest));
}

TurnStatistic OfWeight(const WeightSpec& weight) {
  return {.source = weight.source, .token_clamp = weight.token_clamp};
}

TurnStatistic OfRule(const RejectionRule& rule) {
  return {rule.source, rule.estimator, rule.token_clamp, rule.aggregate_clamp};
}

// A row's numbers by InputRole, settled as the walk does (ratio_phase.h).
class RowReader {
 public:
  RowReader(const CorrectionSpec& spec, const Batch& batch)
      : plan_(MakePlan(spec)), batch_(batch) {}

  void Read(int64_t row) {
    const int64_t begin = batch_.offsets[row];
    const int64_t n = batch_.offsets[row + 1] - begin;
    for (int r = 0; r < kNumInputRoles; ++r) {
      if (!Reads(r)) continue;
      values_[r].resize(static_cast<size_t>(n));
      doctor::Read(batch_.tensors[r], begin, n, values_[r].data());
    }
    is_unknown_.assign(static_cast<size_t>(n), false);
    if (plan_.spec.unknown_rollout && Reads(kRollout)) SettleUnknown();
    is_good_.assign(static_cast<size_t>(n), true);
    for (size_t i = 0; i < is_good_.size(); ++i) is_good_[i] = IsGood(i);
  }

  bool is_good(size_t i) const { return is_good_[i]; }

  // REQUIRES: is_good(i).
  double Statistic(const TurnStatistic& of, size_t i) const {
    const int above = numerator(of.source), below = denominator(of.source);
    const double x{values_[above][i]}, y{values_[below][i]};
    const bool is_unknown = is_unknown_[i] && below == kRollout;
    return Estimate(of, x, y, is_unknown ? 0.0 : x - y);
  }

 private:
  static constexpr int kRollout = static_cast<int>(InputRole::kRollout);

  bool Reads(int role) const { return (plan_.inputs >> role & 1u) != 0; }

  void SettleUnknown() {
    const std::vector<float>& known =
        values_[numerator(plan_.spec.drift_source)];
    for (size_t i = 0; i < is_unknown_.size(); ++i) {
      float& rollout = values_[kRollout][i];
      is_unknown_[i] = std::isnan(rollout);
      if (is_unknown_[i]) rollout = std::isfinite(known[i]) ? known[i] : 0.0f;
    }
  }

  bool IsGood(size_t i) const {
    for (int r = 0; r < kNumInputRoles; ++r) {
      if (Reads(r) && !std::isfinite(values_[r][i])) return false;
    }
    for (int r = 0; r < kNumRatioSources; ++r) {
      const auto source = static_cast<RatioSource>(r);
      if ((plan_.sources >> r & 1u) == 0 || is_of_means(source)) continue;
      if (!std::isfinite(values_[numerator(source)][i] -
                         values_[denominator(source)][i])) {
        return false;
      }
    }
    return true;
  }

  const Plan plan_;
  const Batch& batch_;
  std::vector<float> values_[kNumInputRoles];
  std::vector<bool> is_unknown_;
  std::vector<bool> is_good_;
};

// Writes the means of a row's turns to out, which is 0.
void AddRow(const TurnStatistic& of, const RowReader& row, const uint8_t* mask,
            size_t n, bool drops, float* out) {
  size_t end = 0;
  for (size_t begin = 0; begin < n; begin = end + 1) {
    double sum = 0.0;
    int64_t count = 0;
    for (end = begin; end < n && mask[end] != 0; ++end) {
      if (row.is_good(end)) {
        sum += row.Statistic(of, end);
      } else if (drops) {
        continue;
      }
      ++count;
    }
    if (count == 0) continue;
    std::fill(out + begin, out + end,
              Rounded(sum / static_cast<double>(count), of));
  }
}

}  // namespace

std::vector<TurnStatistic> TurnStatistics(const CorrectionSpec& spec) {
  std::vector<TurnStatistic> found;
  const auto add = [&](const TurnStatistic& statistic) {
    if (std::find(found.begin(), found.end(), statistic) == found.end()) {
      found.push_back(statistic);
    }
  };
  if (spec.weight.level == Level::kTurn) add(OfWeight(spec.weight));
  for (int r = 0; r < spec.num_rules; ++r) {
    if (spec.rules[r].aggregation == Aggregation::kTurnMean) {
      add(OfRule(spec.rules[r]));
    }
  }
  return found;
}

CorrectionSpec WithTurnMeans(const CorrectionSpec& spec) {
  CorrectionSpec lowered = spec;
  const std::vector<TurnStatistic> means = TurnStatistics(spec);
  if (means.empty()) return lowered;
  const auto source_of = [&](const TurnStatistic& statistic) {
    return statistic == means.front() ? RatioSource::kMeans
                                      : RatioSource::kOtherMeans;
  };
  if (spec.weight.level == Level::kTurn) {
    lowered.weight.level = Level::kToken;
    lowered.weight.source = source_of(OfWeight(spec.weight));
    lowered.weight.token_clamp = kUnbounded;
  }
  for (int r = 0; r < spec.num_rules; ++r) {
    RejectionRule& rule = lowered.rules[r];
    if (rule.aggregation != Aggregation::kTurnMean) continue;
    rule.source = source_of(OfRule(spec.rules[r]));
    rule.estimator = Estimator::kRatio;
    rule.aggregation = Aggregation::kToken;
    rule.token_clamp = rule.aggregate_clamp = kUnbounded;
  }
  return lowered;
}

bool TurnMeans::Make(const CorrectionSpec& spec, const Batch& batch,
                     const StopRequest& stop) {
  const std::vector<TurnStatistic> statistics = TurnStatistics(spec);
  if (statistics.empty()) return true;
  const auto positions =
      static_cast<size_t>(batch.offsets[batch.num_sequences]);
  zeros_.assign(positions, 0.0f);
  for (size_t m = 0; m < statistics.size(); ++m) {
    means_[m].assign(positions, 0.0f);
  }
  const bool drops = spec.non_finite == NonFinitePolicy::kDrop;
  RowReader reader(spec, batch);
  for (int64_t row = 0; row < batch.num_sequences; ++row) {
    if (stop && stop()) return false;
    reader.Read(row);
    const int64_t begin = batch.offsets[row];
    const auto n = static_cast<size_t>(batch.offsets[row + 1] - begin);
    for (size_t m = 0; m < statistics.size(); ++m) {
      AddRow(statistics[m], reader, batch.response_mask + begin, n, drops,
             means_[m].data() + begin);
    }
  }
  return true;
}

void TurnMeans::AddTo(Batch* batch) const {
  const auto give = [&](InputRole role, const std::vector<float>& values) {
    batch->tensors[static_cast<int>(role)] = {values.data(), DType::kF32};
  };
  give(InputRole::kMeans, means_[0]);
  give(InputRole::kOtherMeans, means_[1]);
  give(InputRole::kZeros, zeros_);
}

int64_t TurnMeans::Bytes(const CorrectionSpec& spec, int64_t num_positions) {
  const auto means = static_cast<int64_t>(TurnStatistics(spec).size());
  if (means == 0) return 0;
  return (means + 1) * num_positions * int64_t{sizeof(float)};
}

}  // namespace counterweight::kernels
