#include "tests/testing/reference_loss.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/testing/reference_covariance.h"
#include "tests/testing/reference_factors.h"
#include "tests/testing/reference_loss_sums.h"

namespace counterweight::kernels {
namespace {

// bound(1).
double WeightOfOne(const WeightSpec& weight) {
  if (weight.level == Level::kNone) return 1.0;
  const double nearest = std::clamp(1.0, weight.lower, weight.upper);
  return weight.bound == Bound::kMask && nearest != 1.0 ? 0.0 : nearest;
}

LossPoint PointAt(const LossSpec& loss, const ReferenceRow& row, int64_t t) {
  LossPoint point;
  point.advantage = row.Value(InputRole::kAdvantages, t);
  point.log_prob = row.Value(InputRole::kCurrent, t);
  point.denominator = row.Value(RolesOf(loss.source).denominator, t);
  point.log_ratio = row.LogRatio(loss.source, t);
  return point;
}

float Scaled(double advantage, const ReferenceRow& row) {
  return static_cast<float>(advantage * row.advantage_scale);
}

// Weights count for the loss of one row.
bool HasWeight(const CorrectionSpec& spec) {
  return spec.weight.level != Level::kNone && spec.loss.applies_weight;
}

class RowReader {
 public:
  RowReader(const CorrectionSpec& spec, const Batch& batch)
      : spec_(spec), loss_(spec.loss), batch_(batch) {}

  ReferenceLossRow Read(const ReferenceRow& row, const RowVerdict& verdict,
                        const std::vector<double>& weights) const {
    ReferenceLossRow result;
    result.counts = row.counts;
    result.keep = verdict.keep;
    result.over = Pick(loss_.over, result);
    result.counted = loss_.counts_dropped ? result.counts : result.keep;
    const bool has_kl = loss_.kl.estimator != KlEstimator::kNone;
    result.kl_over =
        has_kl ? Pick(loss_.kl.over, result) : Mask(row.counts.size(), 0);
    result.has_weight = HasWeight(spec_);
    for (int64_t t = 0; t < row.size(); ++t) {
      result.points.push_back(PointAt(loss_, row, t));
      result.ref_difference.push_back(DifferenceAt(row, t));
      result.kl_ratio.push_back(KlRatioAt(row, t));
      result.metrics_log_ratio.push_back(row.LogRatio(loss_.metrics_source, t));
      result.weights.push_back(result.has_weight ? weights[t] : 1.0);
    }
    AverageAdvantages(&result);
    AddPadding(row, &result);
    return result;
  }

 private:
  void AverageAdvantages(ReferenceLossRow* row) const {
    if (!loss_.averages_advantages) return;
    double sum = 0.0;
    for (size_t t = 0; t < row->points.size(); ++t) {
      if (row->over[t]) sum += row->points[t].advantage;
    }
    const double count = std::max<double>(1.0, CountOf(row->over));
    for (size_t t = 0; t < row->points.size(); ++t) {
      if (!row->counts[t]) continue;
      row->points[t].advantage = static_cast<float>(sum / count);
    }
  }

  // d of the penalty.
  double DifferenceAt(const ReferenceRow& row, int64_t t) const {
    const double l = row.LogRatio(loss_.kl.source, t);
    return loss_.kl.source == RatioSource::kRefCurrent ? -l : l;
  }

  double KlRatioAt(const ReferenceRow& row, int64_t t) const {
    const KlSpec& kl = loss_.kl;
    if (kl.has_own_ratio) return std::exp(row.LogRatio(kl.ratio_source, t));
    if (kl.gradient_ratio_cap == 0.0) return 1.0;
    return std::min(std::exp(row.LogRatio(RatioSource::kCurrentOld, t)),
                    kl.gradient_ratio_cap);
  }

  static Mask Pick(TokenSet set, const ReferenceLossRow& row) {
    return set == TokenSet::kKept ? row.keep : row.counts;
  }

  // A masked position as it was sent, if its log-probs are finite; an advantage
  // that is not is 0.
  std::optional<PaddingPoint> ReadMasked(const ReferenceRow& row,
                                         int64_t position) const {
    ReferenceRow one;
    for (std::vector<double>& value : one.values) value = {0.0};
    for (InputRole role : RolesOfLoss(loss_)) {
      const double value = DecodeElement(batch_.tensor(role), position);
      const bool finite = std::isfinite(value);
      if (!finite && role == InputRole::kAdvantages) continue;
      if (!finite) return std::nullopt;
      one.values[static_cast<int>(role)] = {value};
    }
    PaddingPoint padding{PointAt(loss_, one, 0), DifferenceAt(one, 0)};
    padding.point.advantage = Scaled(padding.point.advantage, row);
    return padding;
  }

  void AddPadding(const ReferenceRow& row, ReferenceLossRow* result) const {
    const auto n = static_cast<double>(CountOf(row.counts));
    const auto masked = static_cast<double>(loss_.padded_length) - n;
    const double one = WeightOfOne(spec_.weight);
    if (loss_.padded_length > 0 && result->has_weight)
      result->padding_log_weight =
          masked * std::clamp(std::log(one), std::log(1e-8), 20.0);
    result->counts_padding = loss_.counts_padding;
    if (!loss_.counts_padding && !loss_.measures_padding) return;
    result->padding_weight = result->has_weight ? one : 1.0;
    for (int64_t t = 0; t < row.size(); ++t) {
      if (row.counts[t]) {
        if (result->has_weight && IsSequenceLevel(spec_.weight.level))
          result->padding_weight = result->weights[t];
      } else if (!row.dropped[t]) {
        if (const auto padding = ReadMasked(row, row.begin + t))
          result->padding.push_back(*padding);
      }
    }
    if (n > 0 && CountOf(result->keep) == 0) result->padding_weight = 0.0;
  }

  const CorrectionSpec& spec_;
  const LossSpec& loss_;
  const Batch& batch_;
};

}  // namespace

void PrescaleAdvantages(const LossSpec& loss, const Batch& batch,
                        std::vector<ReferenceRow>& rows) {
  if (!loss.prescales_advantages) return;
  std::vector<Mask> counts;
  for (const ReferenceRow& row : rows) counts.push_back(row.counts);
  const Factors factors = FactorsOf(loss.reduction, batch, rows, counts);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].advantage_scale = factors.of_row[i];
    constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);
    for (double& advantage : rows[i].values[kAdvantages])
      advantage = Scaled(advantage, rows[i]);
  }
}

ReferenceLoss LossOf(const CorrectionSpec& spec, const Batch& batch,
                     const CorrectedRows& corrected, Margin& margin) {
  const LossSpec& loss = spec.loss;
  std::vector<Mask> kept;
  for (const RowVerdict& verdict : corrected.verdicts)
    kept.push_back(verdict.keep);
  const Factors factors =
      FactorsOf(loss.reduction, batch, corrected.rows, kept);
  const Factors kl_factors =
      FactorsOf(loss.kl.reduction, batch, corrected.rows, kept);
  const RowReader reader(spec, batch);
  ReferenceLoss result;
  for (size_t i = 0; i < corrected.rows.size(); ++i) {
    result.rows.push_back(reader.Read(corrected.rows[i], corrected.verdicts[i],
                                      corrected.weights[i]));
    result.rows[i].factor = loss.prescales_advantages ? 1.0 : factors.of_row[i];
    result.rows[i].kl_factor = kl_factors.of_row[i];
  }
  SelectByCovariance(loss, result.rows, margin);
  result.sums = EmptyLossSums();
  result.peers = EmptyPeerLossSums();
  const bool nothing_to_penalize =
      loss.kl.estimator != KlEstimator::kNone && kl_factors.count == 0;
  result.sums.count = nothing_to_penalize ? 0.0 : factors.count;
  for (const ReferenceLossRow& row : result.rows) {
    const RowGradient gradient = GradientOf(loss, row, margin);
    AddLossSums(loss, row, gradient, {result.sums, result.magnitudes},
                {result.peers, result.peer_magnitudes}, margin);
    result.gradient.insert(result.gradient.end(), gradient.gradient.begin(),
                           gradient.gradient.end());
    result.gradient_size.insert(result.gradient_size.end(),
                                gradient.size.begin(), gradient.size.end());
  }
  return result;
}

}  // namespace counterweight::kernels
