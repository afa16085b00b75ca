// ROLL's metrics of tokens that no sum has: means of the ratios and differences
// of train_infer_correction, and those of the loss.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_TOKEN_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_TOKEN_METRICS_H_

#include "server/engine/dialect.h"
#include "server/engine/dialects/roll_metrics.h"

namespace counterweight::server {

// See Translation::token_metrics.
void AddRollTokenMetrics(const RollReport& report,
                         const CorrectedTokens& tokens,
                         const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_TOKEN_METRICS_H_
