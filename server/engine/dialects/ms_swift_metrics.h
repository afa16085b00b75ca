// ms-swift's metrics, from the sums of a batch. Those that need other sums are
// left out; under megatron those of the loss are.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_METRICS_H_

#include <cstdint>

#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/ms_swift_correction.h"
#include "server/engine/dialects/ms_swift_loss.h"

namespace counterweight::server {

// The parts of a block that metrics depend on.
struct MsSwiftReport {
  MsSwiftCorrection correction;
  MsSwiftLoss loss;
  bool has_loss = false;
  bool has_opsm = false;
  int64_t padded_length = 0;
};

void AddMsSwiftMetrics(const MsSwiftReport& report,
                       const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_METRICS_H_
