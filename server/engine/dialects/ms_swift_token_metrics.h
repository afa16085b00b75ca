// ms-swift's metrics of tokens that no sum has.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_TOKEN_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_TOKEN_METRICS_H_

#include "server/engine/dialect.h"
#include "server/engine/dialects/ms_swift_metrics.h"

namespace counterweight::server {

bool HasMsSwiftTokenMetrics(const MsSwiftReport& report);

// See Translation::token_metrics.
void AddMsSwiftTokenMetrics(const MsSwiftReport& report,
                            const CorrectedTokens& tokens,
                            const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_TOKEN_METRICS_H_
