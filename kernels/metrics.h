// Counterweight's own metrics, by name, from a batch's sums. README.md has the
// table of names and formulas.
#ifndef COUNTERWEIGHT_KERNELS_METRICS_H_
#define COUNTERWEIGHT_KERNELS_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/drift_means.h"
#include "kernels/metric_sink.h"
#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// The means with the deviations of a batch.
struct DriftSummary : DriftMeans {
  double log_ratio_std;  // of l over tokens
  double weight_std;     // of bounded weights, before normalization
};

DriftSummary Summarize(const BatchSums& sums);

// The population variance of the bounded weights over `tokens` tokens; NaN over
// none. Rounding may leave it just below 0.
double WeightVariance(const WeightSums& weight, int64_t tokens);

// Writes all metrics, in an order that the spec determines.
void WriteMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                  MetricSink* sink);

// The same by name. rule_names: [spec.num_rules].
std::map<std::string, double> Metrics(
    const CorrectionSpec& spec, const std::vector<std::string>& rule_names,
    const BatchSums& sums);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_METRICS_H_
