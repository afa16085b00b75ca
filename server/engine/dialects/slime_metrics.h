// slime's and miles' metrics, from the sums of a batch. Each averages a token
// quantity like the loss: by tokens with calculate_per_token_loss, else the
// rows' means by rows. A metric is left out if the batch has no sum for it;
// with rollout_mask_sums all of them are. slime_token_metrics.h has those too.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_METRICS_H_

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/slime_correction.h"
#include "server/engine/dialects/slime_loss.h"
#include "server/engine/dialects/slime_policies.h"

namespace counterweight::server {

// The parts of a block that metrics depend on.
struct SlimeReport {
  bool is_miles = false;
  bool has_rollout = false;  // rollout log-probs were sent
  SlimePolicies policies;
  SlimeCorrection correction;
  SlimeLoss loss;
  kernels::CorrectionSpec spec;
};

// The rows or tokens that the means of token quantities are over.
double SlimeCount(const SlimeReduction& reduction,
                  const kernels::BatchSums& sums);

// Adds the metrics of the loss, if `report` has one, and of the mismatch.
void AddSlimeMetrics(const SlimeReport& report, const kernels::BatchSums& sums,
                     MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_METRICS_H_
