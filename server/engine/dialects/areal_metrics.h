// AReaL's metrics, from the sums of a batch. The others are those of
// areal_token_metrics.h.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_METRICS_H_

#include <cstdint>

#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/areal_loss.h"
#include "server/engine/dialects/areal_policies.h"
#include "server/engine/dialects/areal_rejection.h"

namespace counterweight::server {

// The parts of a block that metrics depend on.
struct ArealReport {
  ArealPolicies policies;
  ArealRejection rejection;  // off where the loss ignores it
  ArealLoss loss;
  bool has_loss = false;
  bool has_behaviour = false;  // the drift is ArealPolicies::Correction()
  int64_t padded_length = 0;
};

void AddArealMetrics(const ArealReport& report, const kernels::BatchSums& sums,
                     MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_METRICS_H_
