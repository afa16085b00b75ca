#include "tests/testing/reference_loss_sums.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace counterweight::kernels {
namespace {

constexpr double kSafetyClamp = 20.0;

void AddTotals(const LossSpec& loss, const ReferenceLossRow& row,
               Adder<LossSums> sums) {
  const std::vector<double> still(row.points.size(), 0.0);
  const RowLoss of_row = RowLossAt(loss, row, still);
  const double coefficient = loss.kl.coefficient;
  sums.Add(&LossSums::policy, of_row.policy, of_row.policy_size);
  sums.Add(&LossSums::kl_penalty, of_row.kl, of_row.kl_size);
  sums.Add(&LossSums::total, of_row.policy + coefficient * of_row.kl,
           of_row.policy_size + coefficient * of_row.kl_size);
}

void AddLogRatios(const LossSpec& loss, const ReferenceLossRow& row, size_t t,
                  double ratio, Adder<LossSums> sums,
                  Adder<PeerLossSums> peers) {
  const double l = row.metrics_log_ratio[t];
  sums.Add(&LossSums::log_ratio, l);
  if (row.keep[t]) {
    sums.Add(&LossSums::log_ratio_kept, l);
    peers.Add(&PeerLossSums::abs_log_ratio_kept, std::fabs(l));
    peers.Add(&PeerLossSums::safe_log_ratio_kept,
              std::clamp(l, -kSafetyClamp, kSafetyClamp));
  }
  sums.Add(&LossSums::ratio, ratio);
  peers.Add(&PeerLossSums::clipped_ratio, ClippedRatio(loss, ratio));
  sums.Extend(&LossSums::ratio_range, ratio);
  if (loss.kl.estimator == KlEstimator::kNone) return;
  peers.Add(&PeerLossSums::ref_log_ratio, row.ref_difference[t]);
  if (!row.kl_over[t]) return;
  const double r = loss.kl.has_own_ratio ? row.kl_ratio[t] : ratio;
  sums.Add(&LossSums::kl, Product(KlWeightOf(loss, row, t),
                                  KlOf(loss.kl, row.ref_difference[t], r)));
  sums.value.kl_tokens += 1;
}

void AddEvents(const ClipEvents& events, bool kept, LossSums& sums,
               PeerLossSums& peers) {
  sums.clipped += events.clipped;
  sums.high += events.high;
  sums.low += events.low;
  if (!kept) return;
  peers.clipped_kept += events.clipped;
  peers.high_kept += events.high;
  peers.low_kept += events.low;
  sums.capped_kept += events.capped;
  peers.clipped_zero_kept += events.clipped_zero;
}

void AddRowShares(const ReferenceLossRow& row, const RowGradient& gradient,
                  Adder<PeerLossSums> peers) {
  double high = 0.0, low = 0.0, n = 0.0;
  std::set<double> advantages;
  for (size_t t = 0; t < row.points.size(); ++t) {
    if (!row.counts[t]) continue;
    high += gradient.events[t].high;
    low += gradient.events[t].low;
    n += 1.0;
    advantages.insert(row.points[t].advantage);
  }
  if (n == 0) return;
  peers.Add(&PeerLossSums::row_high, high / n);
  peers.Add(&PeerLossSums::row_low, low / n);
  peers.Extend(&PeerLossSums::row_high_range, high / n);
  peers.Extend(&PeerLossSums::row_low_range, low / n);
  peers.value.mixed_rows += advantages.size() > 1;
}

// A row's phi is that of A >= 0 unless all of its advantages are negative; an
// empty row's advantages are those of its padding, if that is read.
void AddPhi(const LossSpec& loss, const ReferenceLossRow& row,
            Adder<PeerLossSums> peers) {
  bool positive = false;
  double padding = 0.0;
  for (const PaddingPoint& point : row.padding)
    padding += point.point.advantage;
  for (size_t t = 0; t < row.points.size(); ++t)
    positive |= row.counts[t] && row.points[t].advantage >= 0;
  if (CountOf(row.counts) == 0) positive = padding >= 0;
  peers.Add(&PeerLossSums::phi, PhiOf(loss, row, positive));
}

// Peers measure padding's clips for these alone.
bool CountsPadding(Surrogate surrogate) {
  return surrogate == Surrogate::kPpoClip || surrogate == Surrogate::kCispo;
}

void AddPaddingSums(const LossSpec& loss, const ReferenceLossRow& row,
                    Adder<PeerLossSums> peers, Margin& margin) {
  const std::vector<double> still(row.points.size(), 0.0);
  const std::vector<LossPoint> points = ClampedPadding(loss, row, still);
  for (size_t i = 0; i < points.size(); ++i) {
    const ClipEvents events = SurrogateSlopeAt(loss, points[i], margin).events;
    if (CountsPadding(loss.surrogate)) {
      peers.Extend(&PeerLossSums::padding_ratio_range,
                   RatioOf(loss, points[i]));
      peers.value.padding_high += events.high;
      peers.value.padding_low += events.low;
    }
    if (loss.kl.estimator != KlEstimator::kNone)
      peers.Add(&PeerLossSums::padding_kl,
                KlOf(loss.kl, row.padding[i].ref_difference,
                     RatioOf(loss, points[i])));
  }
}

}  // namespace

LossSums EmptyLossSums() {
  LossSums sums{};
  sums.ratio_range = kNoExtrema;
  return sums;
}

PeerLossSums EmptyPeerLossSums() {
  PeerLossSums sums{};
  sums.padding_ratio_range = kNoExtrema;
  sums.row_high_range = sums.row_low_range = kNoExtrema;
  return sums;
}

void AddLossSums(const LossSpec& loss, const ReferenceLossRow& row,
                 const RowGradient& gradient, Adder<LossSums> sums,
                 Adder<PeerLossSums> peers, Margin& margin) {
  const std::vector<double> still(row.points.size(), 0.0);
  const std::vector<LossPoint> points = ClampedPoints(loss, row, still);
  AddTotals(loss, row, sums);
  AddRowShares(row, gradient, peers);
  AddPaddingSums(loss, row, peers, margin);
  if (loss.surrogate == Surrogate::kVespo) AddPhi(loss, row, peers);
  const double of_row = loss.surrogate == Surrogate::kGeoMean
                            ? GeoMeanRatio(loss, row, points)
                            : 0.0;
  for (size_t t = 0; t < points.size(); ++t) {
    const double g = gradient.gradient[t], size = gradient.size[t];
    sums.Add(&LossSums::gradient_squared, g * g, size * size);
    if (!row.counts[t]) continue;
    AddLogRatios(loss, row, t, of_row > 0 ? of_row : RatioOf(loss, points[t]),
                 sums, peers);
    AddEvents(gradient.events[t], row.keep[t], sums.value, peers.value);
    const double unclipped = gradient.unclipped_slope[t];
    sums.Add(&LossSums::slope, unclipped);
    if (row.counted[t])
      sums.Add(&LossSums::slope_clipped,
               std::max(unclipped - gradient.slope[t], 0.0), unclipped);
    else
      sums.Add(&LossSums::slope_rejected, unclipped);
  }
}

}  // namespace counterweight::kernels
