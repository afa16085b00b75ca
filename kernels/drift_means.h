// Means of a batch's drift and weights that several reports share.
#ifndef COUNTERWEIGHT_KERNELS_DRIFT_MEANS_H_
#define COUNTERWEIGHT_KERNELS_DRIFT_MEANS_H_

#include <cstdint>

#include "kernels/averages.h"

namespace counterweight::kernels {

// NaN where there is no token. Nats unless named otherwise.
struct DriftMeans {
  double kl;             // mean -l: KL(denominator || numerator), k1
  double k3;             // mean exp(l) - 1 - l, the same KL, never negative
  double chi2_token;     // mean ratio^2 - 1, ratio clamped at 20 nats
  double chi2_sequence;  // the same of products of ratios
  double ppl_ratio;      // mean over rows of exp(mean -l)
  double weight_mean;    // of bounded weights, before normalization
  double weight_max;
  // (mean w)^2 / mean(w^2), in (0, 1]; 0 if every weight is 0
  double effective_sample_size;
  double clipped_high;  // fraction of tokens with raw weight > upper
  double clipped_low;   // fraction with raw weight < lower
};

// (sum w)^2 / (n sum w^2), the share of n tokens that are as good as samples of
// weight 1 (L. Kish, Survey Sampling, 1965): 0 where every weight is 0.
inline double SampleShare(double weight, double squared, int64_t n) {
  const double mean = Mean(weight, n);
  return n > 0 && squared == 0.0 ? 0.0 : mean * mean / Mean(squared, n);
}

// `sums` are BatchSums, or have those of its members that are read here.
template <class Sums>
DriftMeans MeansOf(const Sums& sums) {
  const auto& drift = sums.drift;
  const auto& weight = sums.weight;
  const int64_t n = sums.tokens;
  const int64_t rows = sums.nonempty_sequences;
  DriftMeans means{};
  // + 0.0 turns the -0 of equal policies into 0.
  means.kl = Mean(-drift.log_ratio, n) + 0.0;
  means.k3 = Mean(drift.k3, n);
  means.chi2_token =
      2.0 * Mean(drift.excess, n) + Mean(drift.excess_squared, n);
  means.chi2_sequence = Mean(drift.chi2_sequence, rows);
  means.ppl_ratio = 1.0 + Mean(drift.ppl_ratio_excess, rows);
  const double direct = Mean(weight.weight, n);
  const double near_one = 1.0 + Mean(weight.excess, n);
  means.weight_mean = direct < 0.5 ? direct : near_one;
  means.weight_max = weight.range.max;
  means.effective_sample_size =
      SampleShare(weight.weight, weight.weight_squared, n);
  means.clipped_high = Fraction(weight.tokens_high, n);
  means.clipped_low = Fraction(weight.tokens_outside - weight.tokens_high, n);
  return means;
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_DRIFT_MEANS_H_
