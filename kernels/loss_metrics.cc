#include "kernels/loss_metrics.h"

#include "kernels/averages.h"

namespace counterweight::kernels {

void AddLossMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                    std::map<std::string, double>* metrics) {
  if (spec.loss.surrogate == Surrogate::kNone) return;
  const LossSums& loss = sums.loss;
  const LossSummary summary = SummarizeLoss(sums);
  std::map<std::string, double>& m = *metrics;
  m["loss/policy"] = loss.policy;
  m["loss/count"] = loss.count;
  m["loss/ppo_kl"] = summary.ppo_kl;
  m["loss/ratio_mean"] = Mean(loss.ratio, sums.tokens);
  m["loss/ratio_min"] = loss.ratio_range.min;
  m["loss/ratio_max"] = loss.ratio_range.max;
  m["loss/clip_fraction"] = summary.clip_fraction;
  m["loss/clip_high_fraction"] = summary.clip_high_fraction;
  m["loss/clip_low_fraction"] = summary.clip_low_fraction;
  m["loss/clip_region_fraction"] = Fraction(loss.high + loss.low, sums.tokens);
  m["loss/dual_clip_fraction"] = Fraction(loss.capped_kept, sums.tokens);
  m["loss/gradient_norm"] = summary.gradient_norm;
  m["loss/gradient_clipped_share"] = summary.gradient_clipped_share;
  m["loss/gradient_rejected_share"] = summary.gradient_rejected_share;
  if (spec.loss.kl.estimator == KlEstimator::kNone) return;
  m["loss/kl_penalty"] = loss.kl_penalty;
  m["loss/kl"] = Mean(loss.kl, loss.kl_tokens);
}

}  // namespace counterweight::kernels
