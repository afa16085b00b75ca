// Faults that only the distribution of the drift shows. The rules run if
// nothing gross is found, since gross faults bend these statistics too.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/doctor/examination.h"
#include "kernels/math/exp.h"

namespace counterweight::kernels::doctor {
namespace {

// Means of u = y/x - 1 and v = x/y - 1 of probabilities, and their standard
// errors: the side that sampled has mean 0, whatever the other one is.
struct Ratio {
  double mean;
  double error;
  double z() const { return mean / std::max(error, 1e-30); }
};

Ratio RatioOf(const Examination& e, PairSum sum, PairSum squares) {
  const auto n = static_cast<double>(e.n());
  const double mean = e.pair[sum] / n;
  const double variance = e.pair[squares] / n - mean * mean;
  return {mean, std::sqrt(std::max(variance, 0.0) / n)};
}

// The scale of the logits of y against those of x, which a temperature is.
struct Slope {
  double log;        // ln(sd(logit y) / sd(logit x))
  double error;      // of log, doubled
  double explained;  // share of the difference's variance
};

Slope SlopeOf(const Examination& e) {
  const double n = e.pair[kLogits];
  if (n < 2.0) return {0.0, 1.0, 0.0};
  const double x = e.pair[kLogitX] / n, y = e.pair[kLogitY] / n;
  const double xx = e.pair[kLogitXX] / n - x * x;
  const double yy = e.pair[kLogitYY] / n - y * y;
  const double xy = e.pair[kLogitXY] / n - x * y;
  if (!(xx > 0.0) || !(yy > 0.0)) return {0.0, 1.0, 0.0};
  const double r2 = xy * xy / (xx * yy);
  const double rest = 2.0 * (1.0 - std::sqrt(r2)) * std::sqrt(xx * yy);
  const double apart = std::max(xx + yy - 2.0 * xy, 1e-30);
  return {0.5 * log64(yy / xx), 2.0 * std::sqrt(std::max(1.0 - r2, 0.0) / n),
          1.0 - rest / apart};
}

bool TruncatedRule(Examination* e, const Ratio& u, const Ratio& v) {
  // Where the support is cut, nearly all differences have one sign.
  const double up = e->pair[kUp] / std::max(e->pair[kAbsolute], 1e-30);
  const bool x_is_cut =
      u.z() < -5.0 && u.mean < -0.003 && up < 0.35 && v.mean > 0.0;
  const bool y_is_cut =
      v.z() < -5.0 && v.mean < -0.003 && up > 0.65 && u.mean > 0.0;
  if (!x_is_cut && !y_is_cut) return false;
  const Ratio& cut = x_is_cut ? u : v;
  Finding& finding = e->Add(Name::kTruncatedSupport, -cut.z() / 10.0,
                            e->stream(x_is_cut ? 0 : 1));
  finding.evidence = {{"kept_mass", 1.0 + cut.mean}};
  finding.observed = e->mean(kCapped);
  return true;
}

bool TemperatureRule(Examination* e, const Ratio& u, const Ratio& v) {
  const Slope slope = SlopeOf(*e);
  if (!(std::fabs(slope.log) > std::max(0.042, 6.0 * slope.error)) ||
      !(slope.explained > 0.1)) {
    return false;
  }
  Finding& finding =
      e->Add(Name::kTemperature, std::fabs(slope.log) / 0.1, e->stream(1));
  if (u.z() > 4.0 && u.mean > 2.0 * std::fabs(v.mean)) {
    finding.detail = "the trainer's side is the one that fits the samples";
  } else if (v.z() > 4.0 && v.mean > 2.0 * std::fabs(u.mean)) {
    finding.detail = "the rollout's side is the one that fits the samples";
  } else {
    finding.detail = "which side fits the samples is open";
  }
  finding.observed = e->mean(kCapped);
  finding.evidence = {{"temperature", exp64(-slope.log)},
                      {"low", exp64(-slope.log - slope.error)},
                      {"high", exp64(-slope.log + slope.error)}};
  return true;
}

void DirectionRules(Examination* e, const Ratio& u, const Ratio& v) {
  const bool is_swapped =
      u.z() > 4.0 && std::fabs(v.z()) < 3.0 && u.mean > 3.0 * std::fabs(v.mean);
  if (is_swapped) {
    Finding& finding = e->Add(Name::kSwapped, u.z() / 8.0);
    finding.evidence = {{"mean_ratio", 1.0 + u.mean},
                        {"mean_inverse_ratio", 1.0 + v.mean}};
    finding.observed = e->mean(kCapped);
  } else if (u.z() > 6.0 && u.mean > 0.01) {
    Finding& finding = e->Add(Name::kRolloutNotSampling, u.z() / 12.0);
    finding.detail =
        e->stream(1) == Stream::kOld ? "old/rollout" : "current/rollout";
    finding.evidence = {{"mean_ratio", 1.0 + u.mean}};
    finding.observed = e->mean(kCapped);
  }
}

}  // namespace

void StatisticRules(Examination* e) {
  if (e->n() < 30 || !e->has_rollout()) return;
  const Ratio u = RatioOf(*e, kU, kUU);
  const Ratio v = RatioOf(*e, kV, kVV);
  if (TruncatedRule(e, u, v) || TemperatureRule(e, u, v)) return;
  DirectionRules(e, u, v);
}

void CurrentRule(Examination* e) {
  constexpr Names kExplained = {Name::kCurrentEqualsOld,
                                Name::kCurrentEqualsRollout, Name::kSwapped,
                                Name::kShifted};
  if (!e->has_third() || e->n() < 30 || !e->has_rollout() ||
      e->found.meets(kExplained)) {
    return;
  }
  const float* const q = e->sample.values(0);
  const float* const o = e->sample.values(1);
  const float* const c = e->sample.values(2);
  const int64_t tokens = e->n();
  const auto n = static_cast<double>(tokens);
  double s = 0.0, t = 0.0, ss = 0.0, tt = 0.0, st = 0.0;
  double to_old = 0.0, to_rollout = 0.0;
  for (int64_t i = 0; i < tokens; ++i) {
    const double update = double{c[i]} - double{o[i]};
    const double drift = double{o[i]} - double{q[i]};
    s += update;
    t += drift;
    ss += update * update;
    tt += drift * drift;
    st += update * drift;
    to_old += Capped(update);
    to_rollout += Capped(double{c[i]} - double{q[i]});
  }
  const double ss_mean = ss / n - s / n * (s / n);
  const double tt_mean = tt / n - t / n * (t / n);
  const double correlation = (st / n - s / n * (t / n)) /
                             std::sqrt(std::max(ss_mean * tt_mean, 1e-300));
  if (!(correlation < -0.7) || !(to_rollout < 0.6 * std::max(to_old, 1e-30))) {
    return;
  }
  const Ratio u = RatioOf(*e, kU, kUU);
  const bool is_swapped = u.z() > 2.5 && e->pair[kU] > e->pair[kV];
  Finding& finding = e->Add(is_swapped ? Name::kSwapped : Name::kStaleCurrent,
                            0.9, Stream::kCurrent);
  finding.observed = to_old / n;
  finding.repaired = to_rollout / n;
  finding.evidence = {{"correlation", correlation},
                      {"mean_ratio", 1.0 + u.mean},
                      {"mean_inverse_ratio", 1.0 + e->mean(kV)}};
}

}  // namespace counterweight::kernels::doctor
