// verl's metrics of one batch from the sums of kernels/. Names, formulas and
// quirks are those of verl-project/verl @1dda039b:
// verl/trainer/ppo/rollout_corr_helper.py (prefix "rollout_corr/") and
// verl/utils/debug/metrics.py (prefix "training/").
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_METRICS_H_

#include <span>
#include <string>

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// REQUIRES: sums.nonempty_sequences > 0, for all functions.

// compute_offpolicy_metrics: 13 keys, always. Means over rows include empty
// ones, with perplexity 1.
void AddVerlDriftMetrics(const kernels::BatchSums& sums, MetricMap* metrics);

// calculate_debug_metrics: the comparison of the two policies' probabilities, 5
// keys. NaN if a single token gives no variance.
void AddVerlProbabilityMetrics(const kernels::BatchSums& sums,
                               MetricMap* metrics);

// compute_is_metrics: 14 keys, one more for IcePop and one for batch
// normalization, all but the last of the weights before normalization.
// REQUIRES: some weight is not zero; effective sample size divides by them.
void AddVerlWeightMetrics(const kernels::WeightSpec& spec,
                          const kernels::BatchSums& sums, MetricMap* metrics);

// compute_rs_metrics: 16 keys for each k1 option, 15 for k2 and k3, and two
// totals. names: verl's options, one per rule of the spec.
void AddVerlRuleMetrics(const kernels::CorrectionSpec& spec,
                        std::span<const std::string> names,
                        const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_METRICS_H_
