#include "tests/testing/reference_row_loss.h"

#include <algorithm>
#include <cmath>

namespace counterweight::kernels {
namespace {

// verl takes the log of w + 1e-10.
constexpr double kWeightEpsilon = 1e-10;
// TRL's clamps of VESPO's exponents, and its least lambda.
const double kVespoLowest = std::log(1e-8);
constexpr double kVespoHighest = 20.0;
constexpr double kLeastLambda = 1e-4;

double ClampExponent(double x, double limit) {
  return std::clamp(x, -limit, limit);
}

double Estimate(KlEstimator estimator, double d) {
  switch (estimator) {
    case KlEstimator::kNone:
      return 0.0;
    case KlEstimator::kK1:
      return d;
    case KlEstimator::kK2:
      return d * d / 2;
    case KlEstimator::kK3:
      return std::expm1(-d) + d;
    case KlEstimator::kAbs:
      return std::fabs(d);
  }
  return 0.0;
}

// k of a token that moves from d = `fixed` to d = `live`.
double LiveKl(const KlSpec& kl, double live, double fixed, double ratio) {
  if (!kl.straight_through) return KlOf(kl, live, 1.0);
  return ratio * (live * live / 2 - fixed * fixed / 2) + KlOf(kl, fixed, 1.0);
}

// GMPO, arXiv:2507.20673: l is clipped on the side of the advantage's push.
double GeoMeanLogRatio(const LossSpec& loss, double a, double l) {
  const double clipped = std::clamp(l, -loss.clip_low, loss.clip_high);
  if (a > 0) return std::min(l, clipped);
  if (a < 0) return std::max(l, clipped);
  return 0.0;
}

// The penalty of token t, which moved by `shift` to `live`.
double LiveKlOf(const LossSpec& loss, const ReferenceLossRow& row,
                const LossPoint& live, double shift, size_t t) {
  const double d = row.ref_difference[t];
  if (!loss.kl.importance_weighted)
    return LiveKl(loss.kl, d + shift, d, row.kl_ratio[t]);
  const bool moves = loss.kl.has_own_ratio && OwnKlRatioMoves(loss.kl, d);
  return KlOf(loss.kl, d + shift,
              KlRatioOf(loss, row, live, t) * std::exp(moves ? shift : 0.0));
}

void Add(double term, double* sum, double* size) {
  *sum += term;
  *size += std::fabs(term);
}

void AddPadding(const LossSpec& loss, const ReferenceLossRow& row,
                const std::vector<double>& shift, RowLoss* sums) {
  const std::vector<double> still(shift.size(), 0.0);
  const std::vector<LossPoint> fixed = ClampedPadding(loss, row, still);
  const std::vector<LossPoint> live = ClampedPadding(loss, row, shift);
  for (size_t i = 0; i < live.size(); ++i) {
    const double value = SurrogateValue(loss, live[i], fixed[i]);
    Add(Product(row.padding_weight, value), &sums->policy, &sums->policy_size);
    if (loss.kl.estimator == KlEstimator::kNone) continue;
    const double d = row.padding[i].ref_difference;
    Add(KlOf(loss.kl, d, RatioOf(loss, live[i])), &sums->kl, &sums->kl_size);
  }
}

// sum over the row's `over` tokens of l, shifted, divided by their number.
double MeanLogRatio(const ReferenceLossRow& row,
                    const std::vector<double>& shift) {
  double sum = 0.0;
  for (size_t t = 0; t < shift.size(); ++t)
    if (row.over[t]) sum += row.points[t].log_ratio + shift[t];
  return sum / std::max(static_cast<double>(CountOf(row.over)), 1.0);
}

}  // namespace

int64_t CountOf(const Mask& mask) {
  return std::count(mask.begin(), mask.end(), 1);
}

double KlOf(const KlSpec& kl, double ref_difference, double ratio) {
  const double d = ClampExponent(ref_difference, kl.token_clamp);
  const double k = Estimate(kl.estimator, d);
  const double r = kl.importance_weighted ? ratio : 1.0;
  return kl.clamps_product ? ClampExponent(k * r, kl.value_clamp)
                           : ClampExponent(k, kl.value_clamp) * r;
}

double KlRatioOf(const LossSpec& loss, const ReferenceLossRow& row,
                 const LossPoint& point, size_t t) {
  return loss.kl.has_own_ratio ? row.kl_ratio[t] : RatioOf(loss, point);
}

double KlWeightOf(const LossSpec& loss, const ReferenceLossRow& row, size_t t) {
  return loss.kl.has_weight ? row.weights[t] : 1.0;
}

bool OwnKlRatioMoves(const KlSpec& kl, double ref_difference) {
  return kl.ratio_always_moves || std::fabs(ref_difference) <= kl.token_clamp;
}

std::vector<LossPoint> ClampedPoints(const LossSpec& loss,
                                     const ReferenceLossRow& row,
                                     const std::vector<double>& shift) {
  const std::vector<double> still(shift.size(), 0.0);
  const bool moves = loss.level == LossLevel::kSequence;
  const double mean = MeanLogRatio(row, moves ? shift : still);
  std::vector<LossPoint> points = row.points;
  for (size_t t = 0; t < points.size(); ++t) {
    LossPoint& point = points[t];
    point.log_prob += shift[t];
    const double l = loss.level == LossLevel::kToken ? point.log_ratio : mean;
    point.log_ratio = std::clamp(l + (moves ? 0.0 : shift[t]),
                                 loss.log_ratio_lower, loss.log_ratio_upper);
  }
  return points;
}

std::vector<LossPoint> ClampedPadding(const LossSpec& loss,
                                      const ReferenceLossRow& row,
                                      const std::vector<double>& shift) {
  const std::vector<double> still(shift.size(), 0.0);
  const bool moves = loss.level == LossLevel::kSequence;
  const double mean = MeanLogRatio(row, moves ? shift : still);
  std::vector<LossPoint> points;
  for (const PaddingPoint& padding : row.padding) {
    points.push_back(padding.point);
    double& l = points.back().log_ratio;
    l = std::clamp(loss.level == LossLevel::kToken ? l : mean,
                   loss.log_ratio_lower, loss.log_ratio_upper);
  }
  return points;
}

double GeoMeanRatio(const LossSpec& loss, const ReferenceLossRow& row,
                    const std::vector<LossPoint>& points) {
  double sum = 0.0;
  for (size_t t = 0; t < points.size(); ++t)
    if (row.over[t])
      sum += GeoMeanLogRatio(loss, points[t].advantage, points[t].log_ratio);
  return std::exp(sum /
                  (static_cast<double>(CountOf(row.over)) + kMeanEpsilon));
}

double GeoMeanValue(const LossSpec& loss, const ReferenceLossRow& row,
                    const std::vector<LossPoint>& points) {
  const double n = static_cast<double>(CountOf(row.over)) + kMeanEpsilon;
  double advantage = 0.0, log_weight = 0.0;
  for (size_t t = 0; t < points.size(); ++t) {
    if (!row.over[t]) continue;
    advantage += points[t].advantage;
    if (row.has_weight) log_weight += std::log(row.weights[t] + kWeightEpsilon);
  }
  return -advantage / n * GeoMeanRatio(loss, row, points) *
         std::exp(log_weight / n);
}

double PhiOf(const LossSpec& loss, const ReferenceLossRow& row, bool positive) {
  double q = row.padding_log_weight;
  for (size_t t = 0; t < row.points.size(); ++t) {
    if (!row.counts[t]) continue;
    q += ClampExponent(row.points[t].log_ratio, kVespoHighest);
    if (row.has_weight)
      q += std::clamp(std::log(row.weights[t]), kVespoLowest, kVespoHighest);
  }
  q = std::clamp(q, kVespoLowest, kVespoHighest);
  const double k = positive ? loss.k_positive : loss.k_negative;
  const double lambda = std::max(
      positive ? loss.lambda_positive : loss.lambda_negative, kLeastLambda);
  const double phi = std::exp(lambda + k * q - lambda * std::exp(q));
  return std::isfinite(phi) ? phi : 0.0;
}

RowLoss RowLossAt(const LossSpec& loss, const ReferenceLossRow& row,
                  const std::vector<double>& shift) {
  const std::vector<double> still(shift.size(), 0.0);
  const std::vector<LossPoint> fixed = ClampedPoints(loss, row, still);
  const std::vector<LossPoint> live = ClampedPoints(loss, row, shift);
  const bool vespo = loss.surrogate == Surrogate::kVespo;
  const bool geo_mean = loss.surrogate == Surrogate::kGeoMean;
  const double phi[] = {vespo ? PhiOf(loss, row, false) : 0.0,
                        vespo ? PhiOf(loss, row, true) : 0.0};
  const double of_row = geo_mean ? GeoMeanValue(loss, row, live) : 0.0;
  RowLoss sums;
  for (size_t t = 0; t < shift.size(); ++t) {
    if (row.counted[t]) {
      const double a = row.points[t].advantage;
      const double term =
          geo_mean ? of_row
          : vespo  ? -Product(a, phi[a >= 0]) * live[t].log_prob
                   : Product(row.weights[t],
                             SurrogateValue(loss, live[t], fixed[t]));
      Add(term, &sums.policy, &sums.policy_size);
    }
    if (row.kl_over[t]) {
      Add(Product(KlWeightOf(loss, row, t),
                  LiveKlOf(loss, row, live[t], shift[t], t)),
          &sums.kl, &sums.kl_size);
    }
  }
  if (row.counts_padding) AddPadding(loss, row, shift, &sums);
  sums.policy *= row.factor;
  sums.policy_size *= std::fabs(row.factor);
  sums.kl *= row.kl_factor;
  sums.kl_size *= std::fabs(row.kl_factor);
  return sums;
}

}  // namespace counterweight::kernels
