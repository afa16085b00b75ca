// OpenRLHF's metrics, from the sums of a batch.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_METRICS_H_

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// Adds vllm_kl if `spec` has a weight; ppo_clip_ratio and ppo_kl if it has a
// loss; kl and logprobs_diff if that has a KL penalty. Means without tokens are
// NaN, as in OpenRLHF.
void AddOpenrlhfMetrics(const kernels::CorrectionSpec& spec,
                        const kernels::BatchSums& sums, MetricMap* metrics);

// Adds is_filter_ratio, since 0.11.2: the share of tokens with a statistic
// outside the threshold, or `by_row` of all rows, where empty ones count as
// outside. REQUIRES: `spec` has a weight.
void AddOpenrlhfFilterRatio(const kernels::CorrectionSpec& spec, bool by_row,
                            const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_METRICS_H_
