// ms-swift's metrics, from the sums of a batch; ms_swift_token_metrics.h has
// those that need other sums. Under megatron those of the loss are left out.
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
  // Without old log-probs the current ones are compared with rollout's.
  bool has_old = false;
  bool has_opsm = false;
  int64_t padded_length = 0;

  bool has_loss_metrics() const { return has_loss && !loss.is_megatron; }
  bool has_kl() const {
    return loss.spec.kl.estimator != kernels::KlEstimator::kNone;
  }
  // A batch of width 1 has means over its rows, masked ones too, in place of
  // means over kept tokens.
  bool is_mean_of_rows() const { return padded_length == 1; }
};

// Divisors of ms-swift's means, each at least 1.
struct MsSwiftDivisors {
  explicit MsSwiftDivisors(const kernels::BatchSums& sums);

  double rows;
  double tokens;
  double kept;  // tokens
};

// Adds the clip metrics of the loss. `low`, `high`: shares that are clipped
// there.
void AddMsSwiftClips(MsSwiftLossType type, double low, double high,
                     MetricMap* metrics);

void AddMsSwiftMetrics(const MsSwiftReport& report,
                       const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_METRICS_H_
