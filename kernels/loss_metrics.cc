#include "kernels/loss_metrics.h"

#include "kernels/averages.h"

namespace counterweight::kernels {

void AddLossMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                    MetricSink* sink) {
  if (spec.loss.surrogate == Surrogate::kNone) return;
  const LossSums& loss = sums.loss;
  const LossSummary summary = SummarizeLoss(sums);
  sink->Add("loss/policy", loss.policy);
  sink->Add("loss/count", loss.count);
  sink->Add("loss/ppo_kl", summary.ppo_kl);
  sink->Add("loss/ratio_mean", Mean(loss.ratio, sums.tokens));
  sink->Add("loss/ratio_min", loss.ratio_range.min);
  sink->Add("loss/ratio_max", loss.ratio_range.max);
  sink->Add("loss/clip_fraction", summary.clip_fraction);
  sink->Add("loss/clip_high_fraction", summary.clip_high_fraction);
  sink->Add("loss/clip_low_fraction", summary.clip_low_fraction);
  sink->Add("loss/clip_region_fraction",
            Fraction(loss.high + loss.low, sums.tokens));
  sink->Add("loss/dual_clip_fraction", Fraction(loss.capped_kept, sums.tokens));
  sink->Add("loss/gradient_norm", summary.gradient_norm);
  sink->Add("loss/gradient_clipped_share", summary.gradient_clipped_share);
  sink->Add("loss/gradient_rejected_share", summary.gradient_rejected_share);
  if (spec.loss.kl.estimator == KlEstimator::kNone) return;
  sink->Add("loss/kl_penalty", loss.kl_penalty);
  sink->Add("loss/kl", Mean(loss.kl, loss.kl_tokens));
}

}  // namespace counterweight::kernels
