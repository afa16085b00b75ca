// Passes over rows for ms-swift's metrics (swift/rlhf_trainers/grpo_trainer.py
// of 4.6.0).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_PASS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_PASS_H_

#include <cstddef>

#include "server/engine/dialect.h"
#include "server/engine/dialects/ms_swift_metrics.h"

namespace counterweight::server {

// _compute_rollout_offpolicy_metrics and _compute_is_correction_metrics, over
// the tokens before OPSM; d = lo - lr, c = clamp(d, 20).
class MsSwiftDriftPass {
 public:
  // `report` must outlive the pass.
  explicit MsSwiftDriftPass(const MsSwiftReport& report) : report_(report) {}

  void Add(const RowTokens& row);
  void Write(const MsSwiftDivisors& of, MetricMap* metrics) const;

 private:
  // The token's weight; `geometric`: its row's geometric mean.
  double Weight(double ratio, double geometric) const;

  const MsSwiftReport& report_;
  double k3_ = 0.0;           // sum over tokens
  double row_squares_ = 0.0;  // sum over rows of exp(2 mean d)
  // Sums of weights that are clamped into [1 / threshold, threshold].
  double weights_ = 0.0;
  double weight_squares_ = 0.0;
  RowNumbers clamped_, ratio_, expm1_, row_ratios_;
};

// Metrics of the loss: the KL penalty without the weight, and, in a batch of
// width 1, what PPO's and CISPO's bounds clip.
class MsSwiftLossPass {
 public:
  // `report` must outlive the pass.
  explicit MsSwiftLossPass(const MsSwiftReport& report) : report_(report) {}

  void Add(const RowTokens& row);
  void Write(const MsSwiftDivisors& of, MetricMap* metrics) const;

 private:
  void AddKl(const RowTokens& row);
  void AddClips(const RowTokens& row);
  bool IsCounted(const RowTokens& row, size_t i) const {
    return report_.is_mean_of_rows() || row.keep[i] != 0;
  }

  const MsSwiftReport& report_;
  double kl_ = 0.0;
  double low_ = 0.0;
  double high_ = 0.0;
  RowNumbers difference_, exp_, expm1_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_PASS_H_
