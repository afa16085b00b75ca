#include "server/engine/dialects/slime_means.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace counterweight::server {
namespace {

constexpr const char* kSlimeMeanNames[] = {
    "ppo_kl",
    "pg_clipfrac",
    "train_rollout_logprob_abs_diff",
    "train_rollout_kl",
    "ois",
    "ess_ratio",
    "opsm_clipfrac",
    "tis",
    "tis_abs",
    "tis_clipfrac",
    "mis_training_log_ppl",
    "mis_training_ppl",
    "mis_rollout_log_ppl",
    "mis_rollout_ppl",
    "mis_kl",
    "mis_k3_kl",
    "mis_log_ppl_diff",
    "mis_log_ppl_abs_diff",
    "mis_ppl_ratio",
    "mis_chi2_token",
    "mis_chi2_seq",
    "mis_tis_weight_before_bound",
    "mis_tis_weight_after_bound",
    "mis_tis_truncate_fraction",
    "mis_tis_clip_fraction_low",
    "mis_tis_clip_fraction_high",
    "mis_tis_mask_fraction_low",
    "mis_tis_mask_fraction_high",
    "mis_rs_mask_fraction_low",
    "mis_rs_mask_fraction_high",
    "mis_rs_catastrophic_token_fraction",
    "mis_rs_catastrophic_seq_fraction",
    "mis_is_ratio_mean_after_tis_rs",
    "mis_batch_norm_factor",
    "mis_is_ratio_mean_final",
    "mis_is_ratio_min_final",
    "mis_is_ratio_max_final",
};
static_assert(std::size(kSlimeMeanNames) ==
              static_cast<size_t>(SlimeMean::kCount));

}  // namespace

void SlimeMeans::StartRow(const RowTokens& row) {
  tokens_ =
      static_cast<double>(std::count(row.mask.begin(), row.mask.end(), 1));
  if (reduction_.by_token) return;
  const std::vector<double>& divisors = reduction_.divisors;
  factor_ = 1.0 / (divisors.empty() ? own_divisor()
                                    : divisors[static_cast<size_t>(row.row)]);
}

void SlimeMeans::AddSum(SlimeMean mean, double sum) {
  const auto m = static_cast<size_t>(mean);
  sums_[m] += sum * factor_;
  has_[m] = true;
}

void SlimeMeans::AddOwnSum(SlimeMean mean, double sum) {
  const auto m = static_cast<size_t>(mean);
  sums_[m] += reduction_.by_token ? sum : sum / own_divisor();
  has_[m] = true;
}

void SlimeMeans::Write(double count, MetricMap* metrics) const {
  for (size_t m = 0; m < std::size(sums_); ++m) {
    if (has_[m]) (*metrics)[kSlimeMeanNames[m]] = sums_[m] / count;
  }
}

}  // namespace counterweight::server
