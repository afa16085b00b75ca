// ROLL's metrics, from the sums of a batch. Those that need other sums are left
// out.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_METRICS_H_

#include <cstdint>

#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/roll_correction.h"
#include "server/engine/dialects/roll_loss.h"

namespace counterweight::server {

// The parts of a block that metrics depend on.
struct RollReport {
  RollCorrection correction;
  RollLoss loss;
  bool has_loss = false;
  int64_t padded_length = 0;
};

void AddRollMetrics(const RollReport& report, const kernels::BatchSums& sums,
                    MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_METRICS_H_
