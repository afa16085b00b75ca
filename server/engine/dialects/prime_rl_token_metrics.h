// prime-rl's metrics of tokens that no sum has, by its code
// (src/prime_rl/trainer/rl/loss.py): statistics over rows, and those over
// tokens that need their order.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_TOKEN_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_TOKEN_METRICS_H_

#include "server/engine/dialect.h"
#include "server/engine/dialects/prime_rl_metrics.h"

namespace counterweight::server {

// Memory of AddPrimeRlTokenMetrics: a double for each token, and at most seven
// for each row.
inline constexpr TokenMetricMemory kPrimeRlTokenMemory{
    .of_position = sizeof(double), .of_row = 7 * sizeof(double)};

// See Translation::token_metrics.
void AddPrimeRlTokenMetrics(PrimeRlType type, const CorrectedTokens& tokens,
                            const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_TOKEN_METRICS_H_
