#include "tests/testing/reference_surrogates.h"

#include <algorithm>
#include <cmath>

namespace counterweight::kernels {
namespace {

double Sign(double x) { return static_cast<double>((x > 0) - (x < 0)); }

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double Tau(const LossSpec& loss, double advantage) {
  return advantage > 0 ? loss.tau_positive : loss.tau_negative;
}

// max(-A min(r, cap), -A clip(r)), for A < 0 at most -A dual_clip.
double ClippedTerm(const LossSpec& loss, double advantage, double ratio) {
  const double unclipped = -Product(advantage, std::min(ratio, loss.ratio_cap));
  const double clipped = -Product(advantage, ClippedRatio(loss, ratio));
  const double larger = std::max(unclipped, clipped);
  return advantage < 0 ? std::min(larger, -advantage * loss.dual_clip) : larger;
}

// Which side of its bounds a token is on.
struct Region {
  bool above = false;   // r > 1 + clip_high
  bool below = false;   // r < 1 - clip_low
  bool capped = false;  // r > ratio_cap
};

Region RegionOf(const LossSpec& loss, double ratio, Margin& margin) {
  return {margin.Above(ratio, 1 + loss.clip_high),
          margin.Below(ratio, 1 - loss.clip_low),
          margin.Above(ratio, loss.ratio_cap)};
}

// Two sums of terms of that size compared: what cancels between them leaves
// their roundings.
bool AboveWithin(double x, double bound, double size, Margin& margin) {
  if (std::isinf(bound)) return x > bound;
  return margin.Above(x + size, bound + size);
}

// 1 - exp(log_prob), in which float32 sees a log-prob up to 2^-24 as 0.
double RestOf(double log_prob) {
  return log_prob > 0 && log_prob <= 0x1p-24 ? 0.0 : -std::expm1(log_prob);
}

// DPPO: beyond the bound on the side that the advantage pushes to; A = 0 counts
// as pushing down.
bool IsOutside(const LossSpec& loss, const LossPoint& point, Margin& margin) {
  const double p = std::exp(point.log_prob);
  const double q = std::exp(point.denominator);
  const bool up = point.advantage > 0;
  if (loss.surrogate == Surrogate::kDppoTv)
    return up ? AboveWithin(p - q, loss.clip_high, std::max(p, q), margin)
              : AboveWithin(q - p, loss.clip_low, std::max(p, q), margin);
  constexpr double kEpsilon = 1e-8;  // verl's and SkyRL's
  const double rest_p = RestOf(point.log_prob);
  const double rest_q = RestOf(point.denominator);
  const double drawn = q * (point.denominator - point.log_prob);
  const double others =
      rest_q * std::log((rest_q + kEpsilon) / (rest_p + kEpsilon));
  const bool moved = up ? p > q : p < q;
  if (std::isnan(others)) return moved && !loss.keeps_undefined_divergence;
  return moved &&
         AboveWithin(drawn + others, up ? loss.clip_high : loss.clip_low,
                     std::fabs(drawn) + std::fabs(others), margin);
}

SurrogateSlope PpoSlope(const LossSpec& loss, const LossPoint& point,
                        const Region& region, Margin& margin) {
  const double a = point.advantage;
  const double r = RatioOf(loss, point);
  const double first = region.capped ? loss.ratio_cap : r;
  const double second = ClippedRatio(loss, r);
  SurrogateSlope slope;
  slope.events.clipped = -Product(a, second) > -Product(a, first);
  const bool flat =
      slope.events.clipped ? region.above || region.below : region.capped;
  const bool dual =
      a < 0 && margin.Above(std::max(first, second), loss.dual_clip);
  slope.events.capped = dual;
  slope.by_log_ratio = flat || dual ? 0.0 : -Product(a, r);
  slope.unclipped_by_log_ratio = -Product(a, r);
  return slope;
}

SurrogateSlope DppoSlope(const LossSpec& loss, const LossPoint& point,
                         const Region& region, Margin& margin) {
  const double r = RatioOf(loss, point);
  const double a = point.advantage;
  const bool outside = IsOutside(loss, point, margin);
  SurrogateSlope slope;
  slope.events.clipped = outside && a != 0;
  slope.events.clipped_zero = outside && a == 0;
  slope.events.capped = region.capped && !outside;
  slope.events.high = slope.events.clipped && a > 0;
  slope.events.low = slope.events.clipped && a < 0;
  double& unclipped = loss.log_prob_form ? slope.unclipped_by_log_prob
                                         : slope.unclipped_by_log_ratio;
  unclipped = -Product(a, r);
  if (outside) return slope;
  if (loss.log_prob_form)
    slope.by_log_prob = -Product(a, std::min(r, loss.ratio_cap));
  else
    slope.by_log_ratio = -Product(a, r);
  return slope;
}

SurrogateSlope RolloutIsSlope(const LossPoint& point, double ratio,
                              bool inside) {
  SurrogateSlope slope;
  slope.events.clipped = !inside;
  slope.unclipped_by_log_prob = -Product(point.advantage, ratio);
  slope.by_log_prob = inside ? slope.unclipped_by_log_prob : 0.0;
  return slope;
}

double SapoSlope(const LossSpec& loss, const LossPoint& point, double ratio) {
  const double x = Tau(loss, point.advantage) * (ratio - 1);
  return -Product(point.advantage * 4 * Sigmoid(x) * Sigmoid(-x), ratio);
}

// Computes everything but the predicates that depend on r alone.
SurrogateSlope SlopeAt(const LossSpec& loss, const LossPoint& point,
                       const Region& region, Margin& margin) {
  const double a = point.advantage;
  const double r = RatioOf(loss, point);
  SurrogateSlope slope;
  switch (loss.surrogate) {
    case Surrogate::kPpoClip:
      return PpoSlope(loss, point, region, margin);
    case Surrogate::kClipCov:
      slope = PpoSlope(loss, point, region, margin);
      if (point.selected) slope.by_log_ratio = 0.0;
      slope.events.clipped = point.selected;
      return slope;
    case Surrogate::kDppoTv:
    case Surrogate::kDppoKl:
      return DppoSlope(loss, point, region, margin);
    case Surrogate::kRolloutIs:
      return RolloutIsSlope(point, r,
                            1 - loss.clip_low < r && r < 1 + loss.clip_high);
    case Surrogate::kCispo:
      slope.events.clipped = region.above || region.below;
      slope.by_log_prob = -Product(a, ClippedRatio(loss, r));
      slope.unclipped_by_log_prob = -Product(a, r);
      return slope;
    case Surrogate::kSapo:
      slope.by_log_ratio = SapoSlope(loss, point, r);
      break;
    case Surrogate::kReinforce:
      slope.by_log_prob = -a;
      break;
    case Surrogate::kCrossEntropy:
      slope.by_log_prob = -1.0;
      break;
    case Surrogate::kDro:
      slope.by_log_prob = -a;
      slope.by_log_ratio = loss.beta * point.log_ratio;
      break;
    case Surrogate::kKlCov:
      slope.by_log_ratio = -Product(a, r);
      if (point.selected)
        slope.by_log_prob = loss.covariance_kl_weight * Sign(point.log_ratio);
      break;
    case Surrogate::kImportanceSampling:
      slope.by_log_ratio = -Product(a, r);
      break;
    case Surrogate::kNone:
    case Surrogate::kGeoMean:
    case Surrogate::kVespo:
      break;
  }
  slope.unclipped_by_log_prob = slope.by_log_prob;
  slope.unclipped_by_log_ratio = slope.by_log_ratio;
  return slope;
}

}  // namespace

double RatioOf(const LossSpec& loss, const LossPoint& point) {
  return HasRatio(loss.surrogate) ? std::exp(point.log_ratio) : 1.0;
}

double ClippedRatio(const LossSpec& loss, double ratio) {
  return std::clamp(ratio, 1 - loss.clip_low, 1 + loss.clip_high);
}

double SurrogateValue(const LossSpec& loss, const LossPoint& live,
                      const LossPoint& fixed) {
  const double a = live.advantage;
  const double r = RatioOf(loss, live);
  const double detached = RatioOf(loss, fixed);
  Margin unused;
  switch (loss.surrogate) {
    case Surrogate::kPpoClip:
      return ClippedTerm(loss, a, r);
    case Surrogate::kClipCov:
      return live.selected ? 0.0 : ClippedTerm(loss, a, r);
    case Surrogate::kCispo:
      return -Product(a, ClippedRatio(loss, detached)) * live.log_prob;
    case Surrogate::kSapo: {
      const double tau = Tau(loss, a);
      return -Product(a, Sigmoid(tau * (r - 1)) * 4 / tau);
    }
    case Surrogate::kReinforce:
      return -a * live.log_prob;
    case Surrogate::kDro:
      return -(a * live.log_prob -
               loss.beta / 2 * live.log_ratio * live.log_ratio);
    case Surrogate::kDppoTv:
    case Surrogate::kDppoKl:
      if (IsOutside(loss, fixed, unused)) return 0.0;
      return loss.log_prob_form
                 ? -Product(a, std::min(detached, loss.ratio_cap)) *
                       live.log_prob
                 : -Product(a, r);
    case Surrogate::kRolloutIs:
      return 1 - loss.clip_low < detached && detached < 1 + loss.clip_high
                 ? -Product(a, detached) * live.log_prob
                 : 0.0;
    case Surrogate::kKlCov:
      return -Product(a, r) + (live.selected ? loss.covariance_kl_weight *
                                                   std::fabs(live.log_ratio)
                                             : 0.0);
    case Surrogate::kCrossEntropy:
      return -live.log_prob;
    case Surrogate::kImportanceSampling:
      return -Product(a, r);
    case Surrogate::kNone:
    case Surrogate::kGeoMean:
    case Surrogate::kVespo:
      break;
  }
  return 0.0;
}

SurrogateSlope SurrogateSlopeAt(const LossSpec& loss, const LossPoint& point,
                                Margin& margin) {
  const Region region = RegionOf(loss, RatioOf(loss, point), margin);
  SurrogateSlope slope = SlopeAt(loss, point, region, margin);
  const bool dppo = loss.surrogate == Surrogate::kDppoTv ||
                    loss.surrogate == Surrogate::kDppoKl;
  if (dppo) return slope;
  slope.events.high = region.above && loss.ratio_cap > 1 + loss.clip_high &&
                      point.advantage > 0;
  slope.events.low = (region.below || loss.ratio_cap < 1 - loss.clip_low) &&
                     point.advantage < 0;
  return slope;
}

}  // namespace counterweight::kernels
