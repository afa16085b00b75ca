// TRL's metrics of one batch on one rank from the sums of kernels/: the logs of
// GRPOTrainer in huggingface/trl @f2cd5771, trl/trainer/grpo_trainer.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_METRICS_H_

#include <cstdint>

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/trl_loss.h"

namespace counterweight::server {

// Adds "sampling/...", 5 keys, 0 without terms. REQUIRES: weight.level is not
// kNone.
void AddTrlSamplingMetrics(const kernels::WeightSpec& weight,
                           const kernels::BatchSums& sums, MetricMap* metrics);

// Adds "kl" if beta is not 0, and the loss type's own: "clip_ratio/..." (5
// keys), "cispo_clip_ratio", "vespo/phi_seq_mean", none for sapo.
void AddTrlLossMetrics(const TrlLoss& loss, int64_t padded_length,
                       const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_METRICS_H_
