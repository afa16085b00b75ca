// AReaL's metrics of tokens that no sum has, by its code
// (areal/trainer/ppo/actor.py, areal/utils/functional).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_TOKEN_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_TOKEN_METRICS_H_

#include "server/engine/dialect.h"
#include "server/engine/dialects/areal_metrics.h"

namespace counterweight::server {

// See Translation::token_metrics. A statistic over no token of a batch that has
// tokens is NaN; AReaL leaves it out. REQUIRES: report.has_loss.
void AddArealTokenMetrics(const ArealReport& report,
                          const CorrectedTokens& tokens, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_TOKEN_METRICS_H_
