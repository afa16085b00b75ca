// slime's and miles' metrics of tokens that no sum has, by their code
// (loss.py and mis.py of slime.h). Those that sums have too are the same here.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_TOKEN_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_TOKEN_METRICS_H_

#include "server/engine/dialect.h"
#include "server/engine/dialects/slime_metrics.h"

namespace counterweight::server {

// See Translation::token_metrics.
void AddSlimeTokenMetrics(const SlimeReport& report,
                          const CorrectedTokens& tokens,
                          const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_TOKEN_METRICS_H_
