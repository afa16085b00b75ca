// ROLL's metrics of its losses that no sum has
// (roll/pipeline/rlvr/actor_worker.py and actor_pg_worker.py).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_LOSS_PASS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_LOSS_PASS_H_

#include <string_view>

#include "server/engine/dialect.h"
#include "server/engine/dialects/roll_metrics.h"

namespace counterweight::server {

// Mean and deviation of numbers, by Welford's method.
class RollMoments {
 public:
  // Adds `x`, `count` times.
  void Add(double x, double count);
  // With n - 1; NaN for fewer than two numbers.
  double Deviation() const;

 private:
  double count_ = 0.0;
  double mean_ = 0.0;
  double squares_ = 0.0;
};

// r = exp(lc - lo), or a row's by its mean over kept tokens.
class RollLossPass {
 public:
  // Both must outlive the pass.
  RollLossPass(const RollLoss& loss, const RollDivisors& of)
      : loss_(loss), of_(of) {}

  void Add(const RowTokens& row);
  void Write(const kernels::BatchSums& sums, MetricMap* metrics);

 private:
  double Bounded(double ratio) const;
  bool IsMeanOfMeans() const {
    return loss_.aggregation == RollAggregation::kSeqMeanTokenMean;
  }

  // Writes ratio_. `log_ratio`, `kept`: the row's sum and number of kept
  // tokens.
  void ReadRatios(const RowTokens& row, double log_ratio, double kept);
  // Each reads ratio_.
  void AddKept(const RowTokens& row, double kept);
  void AddOutside(const RowTokens& row);
  void AddLogarithms(const RowTokens& row);

  void WriteShares(std::string_view prefix, MetricMap* metrics) const;
  void WriteVariant(const kernels::BatchSums& sums, MetricMap* metrics);
  void WriteLogarithms(MetricMap* metrics);

  const RollLoss& loss_;
  const RollDivisors& of_;
  // By loss_agg_mode: (lc - lo)^2 / 2, lc - lo and PPO's clipped tokens.
  double square_ = 0.0, log_ratio_sum_ = 0.0, clipped_ = 0.0;
  // Sums of rows' means over kept tokens.
  double ratio_mean_ = 0.0, bounded_mean_ = 0.0;
  kernels::Extrema range_ = kernels::kNoExtrema;  // of kept tokens
  // Positions with a ratio below or above the bounds.
  double low_ = 0.0, high_ = 0.0;
  // Sums with q = log(r + 1e-8): |q|, |A q|, q^2.
  double absolute_ = 0.0, slope_ = 0.0, q_squared_ = 0.0;
  RollMoments q_;
  RowNumbers log_ratio_, ratio_, expm1_, log_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_LOSS_PASS_H_
