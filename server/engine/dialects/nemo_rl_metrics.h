// NeMo RL's metrics, from the sums of a batch. Those that need other sums are
// left out.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_METRICS_H_

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/nemo_rl_correction.h"
#include "server/engine/dialects/nemo_rl_loss.h"

namespace counterweight::server {

// The parts of a block that metrics depend on.
struct NemoRlReport {
  NemoRlCorrection correction;
  NemoRlLoss loss;
  bool compares = false;  // the drift is of the log-probs that NeMo compares
  bool has_loss = false;
};

void AddNemoRlMetrics(const NemoRlReport& report,
                      const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_METRICS_H_
