// The reference's loss of one row: its value, for finite differences, and its
// gradient worked out by hand.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ROW_LOSS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ROW_LOSS_H_

#include <vector>

#include "kernels/spec.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/reference_rules.h"
#include "tests/testing/reference_surrogates.h"

namespace counterweight::kernels {

// verl divides GEO_MEAN's means by n + 1e-8.
inline constexpr double kMeanEpsilon = 1e-8;

// A masked position that LossSpec::measures_padding or counts_padding reads.
struct PaddingPoint {
  LossPoint point;              // its log_ratio is not clamped
  double ref_difference = 0.0;  // current - ref
};

// Vectors are [length].
struct ReferenceLossRow {
  Mask counts, keep;
  Mask over;     // LossSpec::over
  Mask kl_over;  // KlSpec::over
  Mask counted;  // tokens of the policy's sum
  // log_ratio: of LossSpec::source, not clamped.
  std::vector<LossPoint> points;
  std::vector<double> ref_difference;  // d of the penalty
  // The ratio of KlSpec::gradient_ratio_cap or has_own_ratio, else 1.
  std::vector<double> kl_ratio;
  std::vector<double> metrics_log_ratio;  // of LossSpec::metrics_source
  // The caller's weights; 1 where the loss does not apply them.
  std::vector<double> weights;
  bool has_weight = false;
  double factor = 0.0, kl_factor = 0.0;
  std::vector<PaddingPoint> padding;
  bool counts_padding = false;
  // 0 where rules dropped the whole row.
  double padding_weight = 1.0;
  // VESPO: log weights of the padding, added up.
  double padding_log_weight = 0.0;
};

// Number of tokens of a mask.
int64_t CountOf(const Mask& mask);

// One row's parts of LossSums::policy and kl_penalty where each current
// log-prob is larger by `shift` [length], and everything detached is not.
struct RowLoss {
  double policy = 0.0, kl = 0.0;
  // Sums of the addends' absolute values.
  double policy_size = 0.0, kl_size = 0.0;
};
RowLoss RowLossAt(const LossSpec& loss, const ReferenceLossRow& row,
                  const std::vector<double>& shift);

// The row's points, log ratios those of LossSpec::level and clamped.
std::vector<LossPoint> ClampedPoints(const LossSpec& loss,
                                     const ReferenceLossRow& row,
                                     const std::vector<double>& shift);

// Points of the row's padding, which depends on the row's mean alone.
std::vector<LossPoint> ClampedPadding(const LossSpec& loss,
                                      const ReferenceLossRow& row,
                                      const std::vector<double>& shift);

// k of a token, times its r if importance weighted; without its weight.
double KlOf(const KlSpec& kl, double ref_difference, double ratio);

// r of the penalty of token t, whose point is `point`.
double KlRatioOf(const LossSpec& loss, const ReferenceLossRow& row,
                 const LossPoint& point, size_t t);

// The factor of KlSpec::has_weight.
double KlWeightOf(const LossSpec& loss, const ReferenceLossRow& row, size_t t);

// True if a token's r of has_own_ratio moves with its log-prob.
bool OwnKlRatioMoves(const KlSpec& kl, double ref_difference);

// GEO_MEAN: the r of the row, and the V that every token of the row has.
double GeoMeanRatio(const LossSpec& loss, const ReferenceLossRow& row,
                    const std::vector<LossPoint>& points);
double GeoMeanValue(const LossSpec& loss, const ReferenceLossRow& row,
                    const std::vector<LossPoint>& points);

// VESPO's phi for advantages of that sign.
double PhiOf(const LossSpec& loss, const ReferenceLossRow& row, bool positive);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ROW_LOSS_H_
