// Counterweight's own metrics of a policy loss; README.md has the table.
#ifndef COUNTERWEIGHT_KERNELS_LOSS_METRICS_H_
#define COUNTERWEIGHT_KERNELS_LOSS_METRICS_H_

#include <cmath>
#include <cstdint>

#include "kernels/averages.h"
#include "kernels/metric_sink.h"
#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// Figures that several reports share; NaN where there is nothing to average.
struct LossSummary {
  double ppo_kl;         // mean over kept tokens of -l, nats
  double clip_fraction;  // tokens for which the loss used the clipped branch
  double clip_high_fraction;  // tokens with r above the interval and A > 0
  double clip_low_fraction;   // tokens with r below the interval and A < 0
  double gradient_norm;       // 2-norm over all tokens
  // Shares of the sum of |gradient| without clipping and rejection that
  // clipping and rejection take.
  double gradient_clipped_share;
  double gradient_rejected_share;
};

// `sums` are BatchSums, or have those of its members that are read here.
template <class Sums>
LossSummary SummarizeLoss(const Sums& sums) {
  const auto& loss = sums.loss;
  const int64_t n = sums.tokens;
  LossSummary summary{};
  // + 0.0 turns the -0 of equal policies into 0.
  summary.ppo_kl = Mean(-loss.log_ratio_kept, sums.kept_tokens) + 0.0;
  summary.clip_fraction = Fraction(loss.clipped, n);
  summary.clip_high_fraction = Fraction(loss.high, n);
  summary.clip_low_fraction = Fraction(loss.low, n);
  summary.gradient_norm = std::sqrt(loss.gradient_squared);
  summary.gradient_clipped_share = loss.slope_clipped / loss.slope;
  summary.gradient_rejected_share = loss.slope_rejected / loss.slope;
  return summary;
}

// Adds the metrics "loss/..." if the spec has a loss.
void AddLossMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                    MetricSink* sink);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_LOSS_METRICS_H_
