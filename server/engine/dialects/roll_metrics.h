// ROLL's metrics, from the sums of a batch; roll_token_metrics.h has those that
// need other sums.
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
  // Both log-probs of train_infer_correction were sent.
  bool has_pair = false;
  int64_t padded_length = 0;
};

// ROLL adds this to a divisor.
inline constexpr double kRollEpsilon = 1e-8;

// Divisors of ROLL's means.
struct RollDivisors {
  RollDivisors(const RollReport& report, const kernels::BatchSums& sums);

  double positions() const { return tokens + masked; }
  // The divisor of a sum over kept tokens, or of the sum of rows' means.
  double OfLoss(RollAggregation aggregation) const;

  double tokens;  // at least 1
  double rows;    // those with tokens, and kRollEpsilon
  double width;   // of the padded batch
  double masked;  // positions of the padded batch that are not tokens
};

void AddRollMetrics(const RollReport& report, const kernels::BatchSums& sums,
                    MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_METRICS_H_
