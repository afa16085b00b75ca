// SkyRL's metrics, from the sums of a batch. Names are those of its loss
// functions, without the prefix "policy/loss_metrics/" of its trackers.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_METRICS_H_

#include <cstdint>

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// Adds is_ratio_*, outlier_*, token_mask_ratio, tis_*, *_sequence_mask_*;
// nothing if `spec` has neither rules nor a weight. `padded_length` is the
// batch's width with masked positions.
void AddSkyrlCorrectionMetrics(const kernels::CorrectionSpec& spec,
                               int64_t padded_length,
                               const kernels::BatchSums& sums,
                               MetricMap* metrics);

// Adds clip_ratio or importance_ratio, policy_kl and, if `has_cispo_ratios`,
// cispo/*; nothing without a loss.
void AddSkyrlLossMetrics(const kernels::LossSpec& loss, bool has_cispo_ratios,
                         const kernels::BatchSums& sums, MetricMap* metrics);

// Adds the trainer's policy/rollout_train_logprobs_abs_diff_* if old and
// rollout log-probs are compared and there is a token.
void AddSkyrlDriftMetrics(const kernels::CorrectionSpec& spec,
                          const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_METRICS_H_
