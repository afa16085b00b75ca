#include "tests/testing/reference_row_gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace counterweight::kernels {
namespace {

double SignOf(double x) { return static_cast<double>((x > 0) - (x < 0)); }

// dk/dd, 0 strictly outside the clamps. ratio: that of KlSpec::clamps_product.
double KlSlope(const KlSpec& kl, double d, double ratio, Margin& margin) {
  if (kl.straight_through) return d;
  const bool outside_token = margin.Above(std::fabs(d), kl.token_clamp);
  KlSpec unclamped = kl;
  unclamped.value_clamp = LossSpec::kNoBound;
  const double k = KlOf(unclamped, d, kl.clamps_product ? ratio : 1.0);
  if (outside_token || margin.Above(std::fabs(k), kl.value_clamp)) return 0.0;
  switch (kl.estimator) {
    case KlEstimator::kNone:
      return 0.0;
    case KlEstimator::kK1:
      return 1.0;
    case KlEstimator::kK2:
      return d;
    case KlEstimator::kK3:
      return -std::expm1(-d);
    case KlEstimator::kAbs:
      return SignOf(d);
  }
  return 0.0;
}

// Puts one row's gradient together: terms of single tokens at once, terms of
// the row's log ratio at the end.
class GradientBuilder {
 public:
  GradientBuilder(const LossSpec& loss, const ReferenceLossRow& row)
      : loss_(loss), row_(row) {
    result_.gradient.assign(row.points.size(), 0.0);
    result_.size = result_.slope = result_.unclipped_slope = result_.gradient;
    result_.events.assign(row.points.size(), {});
  }

  void Add(size_t t, double term) {
    result_.gradient[t] += term;
    result_.size[t] += std::fabs(term);
  }

  // d loss / d l of a token with l inside its clamp.
  void AddByLogRatio(size_t t, double term) {
    if (loss_.level != LossLevel::kSequence) return Add(t, term);
    AddByRow(term);
  }

  // d loss / d the row's log ratio, likewise.
  void AddByRow(double term) {
    by_row_ += term;
    row_size_ += std::fabs(term);
  }

  RowGradient Finish() {
    const double n = std::max(static_cast<double>(CountOf(row_.over)), 1.0);
    for (size_t t = 0; t < row_.points.size(); ++t) {
      if (!row_.over[t]) continue;
      result_.gradient[t] += by_row_ / n;
      result_.size[t] += row_size_ / n;
    }
    return std::move(result_);
  }

  RowGradient& result() { return result_; }

 private:
  const LossSpec& loss_;
  const ReferenceLossRow& row_;
  RowGradient result_;
  double by_row_ = 0.0, row_size_ = 0.0;
};

// 1 where l depends on the token's log-prob (or its row's mean), 0 where a
// clamp holds it.
std::vector<double> ClampSlopes(const LossSpec& loss,
                                const ReferenceLossRow& row, Margin& margin) {
  LossSpec open = loss;
  open.log_ratio_lower = -LossSpec::kNoBound;
  open.log_ratio_upper = LossSpec::kNoBound;
  const std::vector<double> still(row.points.size(), 0.0);
  std::vector<double> slopes;
  for (const LossPoint& point : ClampedPoints(open, row, still)) {
    const bool above = margin.Above(point.log_ratio, loss.log_ratio_upper);
    const bool below = margin.Below(point.log_ratio, loss.log_ratio_lower);
    slopes.push_back(above || below ? 0.0 : 1.0);
  }
  return slopes;
}

// A row-wide V: GMPO's, where all tokens have the value `of_row`.
void AddGeoMean(const LossSpec& loss, const ReferenceLossRow& row,
                const std::vector<LossPoint>& points, double of_row,
                Margin& margin, GradientBuilder* builder) {
  const double n = static_cast<double>(CountOf(row.over)) + kMeanEpsilon;
  const auto kept = static_cast<double>(CountOf(row.keep));
  for (size_t t = 0; t < points.size(); ++t) {
    if (!row.counts[t]) continue;
    const double a = points[t].advantage;
    const double l = points[t].log_ratio;
    const bool above = margin.Above(l, loss.clip_high);
    const bool below = margin.Below(l, -loss.clip_low);
    const bool clipped = a > 0 ? above : below;
    // verl's clamp and minimum share what is exactly on a bound.
    const bool bound = l == loss.clip_high || l == -loss.clip_low;
    const double moves = a == 0 || clipped ? 0.0 : bound ? 0.5 : 1.0;
    ClipEvents& events = builder->result().events[t];
    events.clipped = a != 0 && clipped;
    events.high = (above || below) && a > 0;
    events.low = (above || below) && a < 0;
    builder->result().unclipped_slope[t] =
        a == 0 ? 0.0 : std::fabs(row.factor * of_row);
    builder->result().slope[t] = moves * std::fabs(row.factor * of_row);
    if (row.over[t]) builder->Add(t, moves * row.factor * kept * of_row / n);
  }
}

void AddPolicy(const LossSpec& loss, const ReferenceLossRow& row,
               const std::vector<LossPoint>& points,
               const std::vector<double>& clamp, Margin& margin,
               GradientBuilder* builder) {
  RowGradient& result = builder->result();
  const bool vespo = loss.surrogate == Surrogate::kVespo;
  const double phi[] = {vespo ? PhiOf(loss, row, false) : 0.0,
                        vespo ? PhiOf(loss, row, true) : 0.0};
  for (size_t t = 0; t < points.size(); ++t) {
    if (!row.counts[t]) continue;
    SurrogateSlope slope = SurrogateSlopeAt(loss, points[t], margin);
    double scale = row.factor * row.weights[t];
    if (vespo) {
      scale = row.factor;  // phi holds the weights
      const double a = points[t].advantage;
      slope.by_log_prob = -Product(a, phi[a >= 0]);
      slope.unclipped_by_log_prob = slope.by_log_prob;
    }
    result.events[t] = slope.events;
    const auto size = [&](double by_log_prob, double by_log_ratio) {
      return std::fabs(Product(scale, by_log_prob + clamp[t] * by_log_ratio));
    };
    result.unclipped_slope[t] =
        size(slope.unclipped_by_log_prob, slope.unclipped_by_log_ratio);
    result.slope[t] = size(slope.by_log_prob, slope.by_log_ratio);
    if (!row.counted[t]) continue;
    builder->Add(t, Product(scale, slope.by_log_prob));
    builder->AddByLogRatio(t, clamp[t] * Product(scale, slope.by_log_ratio));
  }
}

void AddKl(const LossSpec& loss, const ReferenceLossRow& row,
           const std::vector<LossPoint>& points,
           const std::vector<double>& clamp, Margin& margin,
           GradientBuilder* builder) {
  for (size_t t = 0; t < points.size(); ++t) {
    if (!row.kl_over[t]) continue;
    const double scale =
        loss.kl.coefficient * row.kl_factor * KlWeightOf(loss, row, t);
    if (scale == 0.0) continue;
    const double d = row.ref_difference[t];
    const double r = KlRatioOf(loss, row, points[t], t);
    const double slope = KlSlope(loss.kl, d, r, margin);
    if (!loss.kl.importance_weighted) {
      builder->Add(t, scale * slope * row.kl_ratio[t]);
      continue;
    }
    const double product = KlOf(loss.kl, d, r);
    if (loss.kl.clamps_product && std::fabs(product) == loss.kl.value_clamp)
      continue;
    const bool by_row =
        loss.level == LossLevel::kSequence && !loss.kl.has_own_ratio;
    const bool moves =
        loss.kl.has_own_ratio ? OwnKlRatioMoves(loss.kl, d) : clamp[t] == 1.0;
    // k + dk/dd = d: not left to two numbers that cancel far from the
    // reference.
    if (loss.kl.estimator == KlEstimator::kK3 && slope != 0.0 && moves &&
        !by_row) {
      builder->Add(t, scale * d * r);
      continue;
    }
    builder->Add(t, scale * slope * r);
    if (loss.kl.has_own_ratio) {
      builder->Add(t, moves ? scale * product : 0.0);
    } else if (HasRatio(loss.surrogate)) {
      builder->AddByLogRatio(t, clamp[t] * scale * product);
    }
  }
}

// Padding has no gradient of its own, but at level SEQUENCE its V depends on
// the row's mean, which depends on the row's tokens.
void AddPadding(const LossSpec& loss, const ReferenceLossRow& row,
                const std::vector<double>& clamp, Margin& margin,
                GradientBuilder* builder) {
  if (loss.level != LossLevel::kSequence || clamp.empty()) return;
  const std::vector<double> still(row.points.size(), 0.0);
  const std::vector<LossPoint> points = ClampedPadding(loss, row, still);
  const double kl_scale = loss.kl.coefficient * row.kl_factor;
  for (size_t i = 0; i < points.size(); ++i) {
    const SurrogateSlope slope = SurrogateSlopeAt(loss, points[i], margin);
    builder->AddByRow(clamp[0] * Product(row.factor * row.padding_weight,
                                         slope.by_log_ratio));
    if (!loss.kl.importance_weighted) continue;
    const double k =
        KlOf(loss.kl, row.padding[i].ref_difference, RatioOf(loss, points[i]));
    builder->AddByRow(clamp[0] * kl_scale * k);
  }
}

}  // namespace

RowGradient GradientOf(const LossSpec& loss, const ReferenceLossRow& row,
                       Margin& margin) {
  const std::vector<double> still(row.points.size(), 0.0);
  const std::vector<LossPoint> points = ClampedPoints(loss, row, still);
  const std::vector<double> clamp = ClampSlopes(loss, row, margin);
  GradientBuilder builder(loss, row);
  if (loss.surrogate == Surrogate::kGeoMean)
    AddGeoMean(loss, row, points, GeoMeanValue(loss, row, points), margin,
               &builder);
  else
    AddPolicy(loss, row, points, clamp, margin, &builder);
  if (loss.kl.estimator != KlEstimator::kNone)
    AddKl(loss, row, points, clamp, margin, &builder);
  if (row.counts_padding) AddPadding(loss, row, clamp, margin, &builder);
  return builder.Finish();
}

}  // namespace counterweight::kernels
