// Sums over the batches of a run: as counters since the server's start, and as
// gauges over its newest steps.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RUN_SUMS_TABLE_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RUN_SUMS_TABLE_H_

#include <cmath>

#include "server/engine/bounded_sums.h"
#include "server/engine/published_sums.h"
#include "server/observe/metric_row.h"

namespace counterweight::server {

// A gauge shows a batch, and a sum counts one, only if the batch has this.
enum class Needs {
  kTokens,
  kWeight,
  kKeptWeight,
  kLoss,
  kKlPenalty,
  kPolicyVersion,
  kStep,
};

// A counter that each batch increases by a sum over its tokens or sequences. A
// ratio of two rates of these is a mean over all batches, whatever their sizes
// and whichever servers had them; a mean of gauges is not. A sum with either
// sign is two counters, since one that decreases reads as a restart.
struct RunSum {
  MetricRow row;
  // At least 0; NaN counts nothing.
  double (*of)(const PublishedSums& sums);
  Needs needs = Needs::kTokens;
  bool is_count = false;
};

inline double TokenCount(const PublishedSums& sums) {
  return static_cast<double>(sums.tokens);
}
inline double K3Sum(const PublishedSums& sums) {
  return BoundedK3(sums.drift.k3, sums.drift.histogram);
}
inline double WeightSum(const PublishedSums& sums) {
  return Finite(sums.weight.weight);
}
inline double WeightSquaredSum(const PublishedSums& sums) {
  return Finite(sums.weight.weight_squared);
}

inline constexpr RunSum kRunSums[] = {
    {CounterRow("counterweight_drift_log_ratio_positive_nats_total",
                "Sum of the log ratios of this run's tokens, over the batches "
                "where it is above 0.",
                "run"),
     [](const PublishedSums& sums) {
       return BoundedLogRatio(sums.drift.log_ratio, sums.drift.histogram);
     }},
    {CounterRow("counterweight_drift_log_ratio_negative_nats_total",
                "Sum of the log ratios of this run's tokens, over the batches "
                "where it is below 0, without its sign.",
                "run"),
     [](const PublishedSums& sums) {
       return -BoundedLogRatio(sums.drift.log_ratio, sums.drift.histogram);
     }},
    {CounterRow("counterweight_drift_k3_sum_nats_total",
                "Sum of exp(l) - 1 - l over this run's tokens, where l is the "
                "log ratio.",
                "run"),
     K3Sum},
    {CounterRow("counterweight_drift_ratio_squared_sum_total",
                "Sum of exp(2 l) over this run's tokens, where l is the log "
                "ratio.",
                "run"),
     [](const PublishedSums& sums) {
       return Finite(static_cast<double>(sums.tokens) + 2 * sums.drift.excess +
                     sums.drift.excess_squared);
     }},
    {CounterRow("counterweight_drift_sequence_ratio_squared_sum_total",
                "Sum of exp(2 s) over this run's sequences that have tokens, "
                "where s is the sum of their log ratios.",
                "run"),
     [](const PublishedSums& sums) {
       return Finite(static_cast<double>(sums.nonempty_sequences) +
                     sums.drift.chi2_sequence);
     }},
    {CounterRow("counterweight_drift_ppl_ratio_sum_total",
                "Sum of exp(-m) over this run's sequences that have tokens, "
                "where m is the mean of their log ratios.",
                "run"),
     [](const PublishedSums& sums) {
       return BoundedPplRatio(static_cast<double>(sums.nonempty_sequences) +
                                  sums.drift.ppl_ratio_excess,
                              sums.drift.sequence_histogram);
     }},
    {CounterRow("counterweight_drift_weighted_tokens_total",
                "Tokens of this run's batches that have importance weights.",
                "run"),
     TokenCount, Needs::kWeight, true},
    {CounterRow("counterweight_drift_weight_sum_total",
                "Sum of the importance weights of this run's tokens.", "run"),
     WeightSum, Needs::kWeight},
    {CounterRow("counterweight_drift_weight_squared_sum_total",
                "Sum of the squared importance weights of this run's tokens.",
                "run"),
     WeightSquaredSum, Needs::kWeight},
    {CounterRow("counterweight_drift_kept_weight_sum_total",
                "Sum of the importance weights of this run's tokens that no "
                "rule dropped or zeroed.",
                "run"),
     [](const PublishedSums& sums) { return Finite(sums.weight.kept_weight); },
     Needs::kKeptWeight},
    {CounterRow("counterweight_drift_kept_weight_squared_sum_total",
                "Sum of the squared importance weights of this run's tokens "
                "that no rule dropped or zeroed.",
                "run"),
     [](const PublishedSums& sums) {
       return Finite(sums.weight.kept_weight_squared);
     },
     Needs::kKeptWeight},
    {CounterRow("counterweight_drift_weight_high_tokens_total",
                "Tokens of this run with a weight above the upper bound.",
                "run"),
     [](const PublishedSums& sums) {
       return static_cast<double>(sums.weight.tokens_high);
     },
     Needs::kWeight, true},
    {CounterRow("counterweight_drift_weight_outside_tokens_total",
                "Tokens of this run with a weight that the bounds truncated or "
                "masked.",
                "run"),
     [](const PublishedSums& sums) {
       return static_cast<double>(sums.weight.tokens_outside);
     },
     Needs::kWeight, true},
    {CounterRow("counterweight_loss_tokens_total",
                "Tokens of this run's batches that have a policy loss.", "run"),
     [](const PublishedSums& sums) { return static_cast<double>(sums.tokens); },
     Needs::kLoss, true},
    {CounterRow("counterweight_loss_clipped_tokens_total",
                "Tokens of this run clipped by the loss.", "run"),
     [](const PublishedSums& sums) {
       return static_cast<double>(sums.loss.clipped);
     },
     Needs::kLoss, true},
    {CounterRow("counterweight_loss_clip_high_tokens_total",
                "Tokens of this run with a ratio above the loss's interval and "
                "a positive advantage.",
                "run"),
     [](const PublishedSums& sums) {
       return static_cast<double>(sums.loss.high);
     },
     Needs::kLoss, true},
    {CounterRow("counterweight_loss_clip_low_tokens_total",
                "Tokens of this run with a ratio below the loss's interval and "
                "a negative advantage.",
                "run"),
     [](const PublishedSums& sums) {
       return static_cast<double>(sums.loss.low);
     },
     Needs::kLoss, true},
    {CounterRow("counterweight_loss_kept_tokens_total",
                "Kept tokens of this run's batches that have a loss with a "
                "finite log ratio.",
                "run"),
     [](const PublishedSums& sums) {
       return std::isnan(sums.loss.log_ratio_kept)
                  ? 0.0
                  : static_cast<double>(sums.kept_tokens);
     },
     Needs::kLoss, true},
    {CounterRow("counterweight_loss_log_ratio_positive_nats_total",
                "Sum of the loss's log ratios over this run's kept tokens, of "
                "the batches where it is above 0.",
                "run"),
     [](const PublishedSums& sums) { return Finite(sums.loss.log_ratio_kept); },
     Needs::kLoss},
    {CounterRow("counterweight_loss_log_ratio_negative_nats_total",
                "Sum of the loss's log ratios over this run's kept tokens, of "
                "the batches where it is below 0, without its sign.",
                "run"),
     [](const PublishedSums& sums) {
       return -Finite(sums.loss.log_ratio_kept);
     },
     Needs::kLoss},
    {CounterRow("counterweight_loss_gradient_sum_total",
                "Sum of the absolute gradients of this run's tokens without "
                "clipping and rejection.",
                "run"),
     [](const PublishedSums& sums) { return Finite(sums.loss.slope); },
     Needs::kLoss},
    {CounterRow("counterweight_loss_gradient_clipped_sum_total",
                "Part of counterweight_loss_gradient_sum_total that clipping "
                "took.",
                "run"),
     [](const PublishedSums& sums) { return Finite(sums.loss.slope_clipped); },
     Needs::kLoss},
    {CounterRow("counterweight_loss_gradient_rejected_sum_total",
                "Part of counterweight_loss_gradient_sum_total on tokens that "
                "rules dropped.",
                "run"),
     [](const PublishedSums& sums) { return Finite(sums.loss.slope_rejected); },
     Needs::kLoss},
    {CounterRow("counterweight_loss_kl_tokens_total",
                "Tokens of this run's KL penalties, of the batches where the "
                "penalty is a number.",
                "run"),
     [](const PublishedSums& sums) {
       return std::isnan(sums.loss.kl)
                  ? 0.0
                  : static_cast<double>(sums.loss.kl_tokens);
     },
     Needs::kKlPenalty, true},
    {CounterRow("counterweight_loss_kl_positive_nats_total",
                "Sum of the KL penalty's estimator over this run's tokens, of "
                "the batches where it is above 0.",
                "run"),
     [](const PublishedSums& sums) { return Finite(sums.loss.kl); },
     Needs::kKlPenalty},
    {CounterRow("counterweight_loss_kl_negative_nats_total",
                "Sum of the KL penalty's estimator over this run's tokens, of "
                "the batches where it is below 0, without its sign.",
                "run"),
     [](const PublishedSums& sums) { return -Finite(sums.loss.kl); },
     Needs::kKlPenalty},
};

// A gauge of a sum over a run's newest eight steps, see recent_steps.h.
struct RecentSum {
  MetricRow row;
  double (*of)(const PublishedSums& sums);
  Needs needs = Needs::kTokens;
};

inline constexpr RecentSum kRecentSums[] = {
    {GaugeRow("counterweight_drift_eight_steps_tokens",
              "Tokens that count, of this run's newest eight steps; a batch "
              "without a step is one by itself.",
              "run"),
     TokenCount},
    {GaugeRow("counterweight_drift_eight_steps_k3_sum_nats",
              "Sum of exp(l) - 1 - l over the tokens of the newest eight "
              "steps, where l is the log ratio.",
              "run"),
     K3Sum},
    {GaugeRow("counterweight_drift_eight_steps_weighted_tokens",
              "Tokens of the batches with importance weights, of the newest "
              "eight steps.",
              "run"),
     TokenCount, Needs::kWeight},
    {GaugeRow("counterweight_drift_eight_steps_weight_sum",
              "Sum of the importance weights over the newest eight steps.",
              "run"),
     WeightSum, Needs::kWeight},
    {GaugeRow("counterweight_drift_eight_steps_weight_squared_sum",
              "Sum of the squared importance weights over the newest eight "
              "steps.",
              "run"),
     WeightSquaredSum, Needs::kWeight},
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RUN_SUMS_TABLE_H_
