// NeMo RL's metrics of tokens that no sum has, by its code
// (nemo_rl/algorithms/loss/loss_functions.py, ClippedPGLossFn).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_TOKEN_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_TOKEN_METRICS_H_

#include "server/engine/dialect.h"
#include "server/engine/dialects/nemo_rl_metrics.h"

namespace counterweight::server {

// See Translation::token_metrics.
void AddNemoRlTokenMetrics(const NemoRlReport& report,
                           const CorrectedTokens& tokens,
                           const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_TOKEN_METRICS_H_
