// Counterweight's own metrics, by name, from a batch's sums. README.md has the
// table of names and formulas.
#ifndef COUNTERWEIGHT_KERNELS_METRICS_H_
#define COUNTERWEIGHT_KERNELS_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// Quantities of a batch's drift and weights that several reports share; NaN
// where there is no token. Nats unless named otherwise.
struct DriftSummary {
  double kl;             // mean -l: KL(denominator || numerator), k1
  double k3;             // mean exp(l) - 1 - l, the same KL, never negative
  double chi2_token;     // mean ratio^2 - 1, ratio clamped at 20 nats
  double chi2_sequence;  // the same of products of ratios
  double ppl_ratio;      // mean over rows of exp(mean -l)
  double log_ratio_std;  // of l over tokens
  double weight_mean;    // of bounded weights, before normalization
  double weight_std;
  double weight_max;
  // (mean w)^2 / mean(w^2), in (0, 1]; 0 if every weight is 0
  double effective_sample_size;
  double clipped_high;  // fraction of tokens with raw weight > upper
  double clipped_low;   // fraction with raw weight < lower
};

DriftSummary Summarize(const BatchSums& sums);

// The population variance of the bounded weights over `tokens` tokens; NaN over
// none. Rounding may leave it just below 0.
double WeightVariance(const WeightSums& weight, int64_t tokens);

// Returns all metrics. rule_names: [spec.num_rules].
std::map<std::string, double> Metrics(
    const CorrectionSpec& spec, const std::vector<std::string>& rule_names,
    const BatchSums& sums);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_METRICS_H_
