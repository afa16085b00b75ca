#include "server/engine/dialects/openrlhf_metrics.h"

#include <cstdint>
#include <limits>

namespace counterweight::server {
namespace {

// masked_mean of openrlhf/models/utils.py divides by the plain count.
double Mean(double sum, int64_t tokens) {
  return tokens > 0 ? sum / static_cast<double>(tokens)
                    : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void AddOpenrlhfMetrics(const kernels::CorrectionSpec& spec,
                        const kernels::BatchSums& sums, MetricMap* metrics) {
  const int64_t tokens = sums.tokens;
  if (spec.weight.level != kernels::Level::kNone) {
    // It is rollout minus old, while the weight's log ratio is old minus
    // rollout.
    (*metrics)["vllm_kl"] = Mean(-sums.drift.log_ratio, tokens);
  }
  if (spec.loss.surrogate == kernels::Surrogate::kNone) return;
  (*metrics)["ppo_clip_ratio"] =
      Mean(static_cast<double>(sums.loss.clipped), tokens);
  (*metrics)["ppo_kl"] = Mean(-sums.loss.log_ratio, tokens);
  const kernels::KlSpec& kl = spec.loss.kl;
  if (kl.estimator == kernels::KlEstimator::kNone) return;
  // The aggregated penalty, over given counts where there are any.
  const bool is_mean = kl.reduction.count == kernels::BatchCount::kTokens;
  (*metrics)["kl"] =
      is_mean && tokens == 0 ? Mean(0.0, 0) : sums.loss.kl_penalty;
  (*metrics)["logprobs_diff"] = Mean(sums.peers.loss.ref_log_ratio, tokens);
}

void AddOpenrlhfFilterRatio(const kernels::CorrectionSpec& spec, bool by_row,
                            const kernels::BatchSums& sums,
                            MetricMap* metrics) {
  const bool has_rule = spec.num_rules > 0;
  if (by_row) {
    const int64_t empty = sums.num_sequences - sums.nonempty_sequences;
    const int64_t outside = has_rule ? sums.rules[0].dropped_sequences : 0;
    (*metrics)["is_filter_ratio"] =
        Mean(static_cast<double>(outside + empty), sums.num_sequences);
    return;
  }
  const bool is_bounded = spec.weight.bound != kernels::Bound::kNone;
  const int64_t weights = is_bounded ? sums.weight.tokens_outside : 0;
  const int64_t outside = has_rule ? sums.rules[0].dropped_tokens : weights;
  (*metrics)["is_filter_ratio"] =
      Mean(static_cast<double>(outside), sums.tokens);
}

}  // namespace counterweight::server
