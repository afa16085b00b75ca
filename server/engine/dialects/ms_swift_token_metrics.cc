#include "server/engine/dialects/ms_swift_token_metrics.h"

#include "server/engine/dialects/ms_swift_pass.h"

namespace counterweight::server {
namespace {

// The loss's are of sums but for a weighted KL penalty and a batch of width 1.
bool NeedsLossPass(const MsSwiftReport& report) {
  if (!report.has_loss_metrics()) return false;
  return report.is_mean_of_rows() ||
         (report.has_kl() && report.loss.spec.kl.has_weight);
}

}  // namespace

bool HasMsSwiftTokenMetrics(const MsSwiftReport& report) {
  return report.correction.measures || NeedsLossPass(report);
}

void AddMsSwiftTokenMetrics(const MsSwiftReport& report,
                            const CorrectedTokens& tokens,
                            const kernels::BatchSums& sums,
                            MetricMap* metrics) {
  const MsSwiftDivisors of(sums);
  const bool has_loss = NeedsLossPass(report);
  MsSwiftDriftPass drift(report);
  MsSwiftLossPass loss(report);
  tokens.ForEachRow([&](const RowTokens& row) {
    if (report.correction.measures) drift.Add(row);
    if (has_loss) loss.Add(row);
  });
  if (report.correction.measures) drift.Write(of, metrics);
  if (has_loss) loss.Write(of, metrics);
}

}  // namespace counterweight::server
