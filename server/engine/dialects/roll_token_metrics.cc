#include "server/engine/dialects/roll_token_metrics.h"

#include "server/engine/dialects/roll_drift_pass.h"
#include "server/engine/dialects/roll_loss_pass.h"

namespace counterweight::server {

void AddRollTokenMetrics(const RollReport& report,
                         const CorrectedTokens& tokens,
                         const kernels::BatchSums& sums, MetricMap* metrics) {
  const RollDivisors of(report, sums);
  RollDriftPass drift;
  RollLossPass loss(report.loss, of);
  tokens.ForEachRow([&](const RowTokens& row) {
    if (report.has_pair) drift.Add(row);
    if (report.has_loss) loss.Add(row);
  });
  if (report.has_pair) drift.Write(of.rows, metrics);
  if (report.has_loss) loss.Write(sums, metrics);
}

}  // namespace counterweight::server
