// Counterweight's own metrics of a policy loss; README.md has the table.
#ifndef COUNTERWEIGHT_KERNELS_LOSS_METRICS_H_
#define COUNTERWEIGHT_KERNELS_LOSS_METRICS_H_

#include <map>
#include <string>

#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// Figures that several reports share; NaN where there is nothing to average.
struct LossSummary {
  double ppo_kl;              // mean over kept tokens of -l, nats
  double clip_fraction;       // tokens whose clipped branch the loss took
  double clip_high_fraction;  // tokens with r above the interval and A > 0
  double clip_low_fraction;   // tokens with r below the interval and A < 0
  double gradient_norm;       // 2-norm over all tokens
  // Shares of the sum of |gradient| without clipping and rejection that
  // clipping and rejection take.
  double gradient_clipped_share;
  double gradient_rejected_share;
};

LossSummary SummarizeLoss(const BatchSums& sums);

// Adds the metrics "loss/..." if the spec has a loss.
void AddLossMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                    std::map<std::string, double>* metrics);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_LOSS_METRICS_H_
