// Metrics of the corrected batches, each request_id once. "corrected" families
// are over all runs, "drift" and "loss" ones have the label run: one family
// with both would make every sum over it count twice.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_TABLE_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_TABLE_H_

#include <cstdint>

#include "kernels/drift_means.h"
#include "kernels/loss_metrics.h"
#include "server/engine/publication.h"
#include "server/observe/metric_row.h"
#include "server/observe/run_sums_table.h"

namespace counterweight::server {

// A counter that each batch increases by one of its sums.
struct BatchCounter {
  MetricRow row;
  int64_t PublishedSums::*field;  // null: by 1
};

inline constexpr BatchCounter kCorrectedCounters[] = {
    {CounterRow("counterweight_corrected_batches_total",
                "Batches corrected in all runs."),
     nullptr},
    {CounterRow("counterweight_corrected_tokens_total",
                "Tokens that count, of the corrected batches of all runs."),
     &PublishedSums::tokens},
    {CounterRow("counterweight_corrected_sequences_total",
                "Sequences of the corrected batches of all runs."),
     &PublishedSums::num_sequences},
    {CounterRow("counterweight_corrected_kept_tokens_total",
                "Tokens in the keep masks of all runs."),
     &PublishedSums::kept_tokens},
    {CounterRow("counterweight_corrected_kept_sequences_total",
                "Sequences of all runs with a token in the keep mask."),
     &PublishedSums::kept_sequences},
    {CounterRow("counterweight_corrected_non_finite_tokens_total",
                "Tokens of all runs that were dropped or neutralized because a "
                "number was not finite."),
     &PublishedSums::non_finite_tokens},
};

inline constexpr MetricRow kCorrectedTable[] = {
    HistogramRow("counterweight_corrected_token_log_ratio_nats",
                 "Log ratio of each token, over all runs."),
    HistogramRow("counterweight_corrected_sequence_log_ratio_nats",
                 "Mean log ratio of each sequence, over all runs."),
    GaugeRow("counterweight_drift_runs",
             "Values of the label run that have series now."),
};

inline constexpr BatchCounter kRunCounters[] = {
    {CounterRow("counterweight_drift_batches_total",
                "Batches corrected in this run.", "run"),
     nullptr},
    {CounterRow("counterweight_drift_tokens_total",
                "Tokens that count, of this run's corrected batches.", "run"),
     &PublishedSums::tokens},
    {CounterRow("counterweight_drift_sequences_total",
                "Sequences of this run's corrected batches.", "run"),
     &PublishedSums::num_sequences},
    {CounterRow("counterweight_drift_kept_tokens_total",
                "Tokens in the keep masks of this run.", "run"),
     &PublishedSums::kept_tokens},
    {CounterRow("counterweight_drift_non_finite_tokens_total",
                "Tokens of this run that were dropped or neutralized because a "
                "number was not finite.",
                "run"),
     &PublishedSums::non_finite_tokens},
};

inline constexpr MetricRow kRunTable[] = {
    CounterRow("counterweight_drift_dropped_tokens_total",
               "Tokens that a rule dropped or gave the weight 0.", "run, rule"),
    CounterRow(
        "counterweight_drift_dropped_sequences_total",
        "Sequences with a token that a rule dropped or gave the weight 0.",
        "run, rule"),
    HistogramRow("counterweight_drift_token_log_ratio_nats",
                 "Log ratio of each token of this run.", "run"),
    HistogramRow("counterweight_drift_sequence_log_ratio_nats",
                 "Mean log ratio of each sequence of this run.", "run"),
    HistogramRow(
        "counterweight_drift_staleness_versions",
        "Staleness of each token of this run with a known version: the trained "
        "policy's version minus the version that sampled the token.",
        "run"),
    CounterRow("counterweight_drift_staleness_tokens_total",
               "Tokens of this run by their staleness in versions, of batches "
               "with versions.",
               "run, staleness"),
    CounterRow("counterweight_drift_staleness_k3_sum_nats_total",
               "Sum of exp(l) - 1 - l, where l is the log ratio, over this "
               "run's tokens of this staleness.",
               "run, staleness"),
    GaugeRow("counterweight_drift_staleness_kl_nats",
             "KL divergence as in counterweight_drift_kl_nats, over the tokens "
             "of this staleness of the last batch that had any.",
             "run, staleness"),
    GaugeRow("counterweight_drift_staleness_k3_nats",
             "KL divergence as in counterweight_drift_k3_nats, over the tokens "
             "of this staleness of the last batch that had any.",
             "run, staleness"),
};

// Batches that the doctor examines, see doctor_series.h.
inline constexpr MetricRow kDoctorTable[] = {
    GaugeRow("counterweight_doctor_cause_k3_nats",
             "Mean k3 of a token of this run's last examined batch by cause: "
             "engine_staleness (old over rollout log-probs), update (current "
             "over old) and interaction of the two, which may be below 0; "
             "absent without these log-probs.",
             "run, cause"),
    GaugeRow(
        "counterweight_doctor_audited_k3_nats",
        "Mean k3 of a token between engine and trainer, by this run's "
        "audited rows since the drift last changed; bound is mean, and low "
        "or high of its interval, from 32 rows on.",
        "run, bound"),
    CounterRow("counterweight_doctor_audited_rows_total",
               "Rows of this run that were audited.", "run"),
    CounterRow("counterweight_doctor_batches_total",
               "Batches of this run that were examined for faults of their "
               "data: the first three, one of 64, and each after one with a "
               "fault.",
               "run"),
    CounterRow("counterweight_doctor_findings_total",
               "Examined batches with this finding; severity is error (the "
               "batch is wrong), warning (rarely meant so) or note.",
               "run, finding, severity"),
};

// Steps that trainers report, see step_ledger.h.
inline constexpr MetricRow kStepTable[] = {
    CounterRow("counterweight_step_steps_total",
               "Optimizer steps of this run that its trainer reported.", "run"),
    CounterRow("counterweight_step_tokens_total",
               "Tokens of the reported steps by entry: corrected (in the "
               "response masks of the corrections that the trainer received) "
               "or trained (in those of the batches that it trained on).",
               "run, entry"),
    CounterRow("counterweight_step_receipts_total",
               "Reported steps by what became of their weights: used; unused, "
               "rounded or replaced in the loss; not_issued or not_applied, if "
               "the trainer reported one side; incomplete, if reports of other "
               "processes were missing.",
               "run, state"),
    CounterRow("counterweight_step_changed_tokens_total",
               "Tokens with a weight other than 1 by entry: issued to the "
               "trainer, or applied in its losses.",
               "run, entry"),
    CounterRow("counterweight_step_skipped_batches_total",
               "Batches that were trained without a correction, by the "
               "trainer's reason.",
               "run, reason"),
    CounterRow("counterweight_step_ratio_one_total",
               "Reported steps in which every ratio of current to old "
               "log-probs was exactly 1.",
               "run"),
};

// Runs that declare their method.
inline constexpr MetricRow kDeclaredTable[] = {
    CounterRow("counterweight_run_other_method_total",
               "Batches of this run that another method corrected than the run "
               "declares.",
               "run"),
};

// The gauges of a run show these of its last batch that had tokens or, where
// batches name their step, of the newest step.
struct RunDrift : kernels::DriftMeans, kernels::LossSummary {
  double policy_version;
  double step, step_parts, step_tokens;
  // (sum w)^2 / (n sum w^2), sums over tokens that no rule dropped or zeroed, n
  // of all.
  double kept_effective_sample_size;
  double kept_tokens;  // fraction in the keep mask
  double outside;      // fraction with raw weight outside the bounds
  // As in kernels::LossSums, but loss_kl is a mean over the KL's tokens.
  double loss, policy_loss, kl_penalty, loss_kl;
};

struct DriftGauge {
  MetricRow row;
  double RunDrift::*field;
  Needs needs = Needs::kTokens;
};

inline constexpr DriftGauge kDriftGauges[] = {
    {GaugeRow("counterweight_drift_kl_nats",
              "KL divergence of the sampling policy from the other policy: the "
              "mean of -l over the last batch's tokens, where l is the log "
              "ratio.",
              "run"),
     &RunDrift::kl},
    {GaugeRow("counterweight_drift_k3_nats",
              "KL divergence of the sampling policy from the other policy by "
              "an estimator that is never negative: the mean of exp(l) - 1 - l "
              "over the last batch's tokens.",
              "run"),
     &RunDrift::k3},
    {GaugeRow("counterweight_drift_chi2_token",
              "Chi-squared divergence by token: the mean of exp(2 l) - 1 over "
              "the last batch's tokens.",
              "run"),
     &RunDrift::chi2_token},
    {GaugeRow("counterweight_drift_chi2_sequence",
              "Chi-squared divergence by sequence: the mean of exp(2 sum l) - "
              "1 over the last batch's sequences.",
              "run"),
     &RunDrift::chi2_sequence},
    {GaugeRow("counterweight_drift_ppl_ratio",
              "Ratio of the perplexities under the two policies: the mean of "
              "exp(-mean l) over the last batch's sequences.",
              "run"),
     &RunDrift::ppl_ratio},
    {GaugeRow("counterweight_drift_kept_token_ratio",
              "Share of the last batch's tokens in the keep mask.", "run"),
     &RunDrift::kept_tokens},
    {GaugeRow("counterweight_drift_effective_sample_size_ratio",
              "Effective sample size of the last batch as a share of its "
              "tokens: (mean w)^2 / mean(w^2) of the importance weights w.",
              "run"),
     &RunDrift::effective_sample_size, Needs::kWeight},
    {GaugeRow("counterweight_drift_kept_effective_sample_size_ratio",
              "Effective sample size of the last batch's tokens that no rule "
              "dropped or zeroed, as a share of all its tokens n: (sum w)^2 / "
              "(n sum w^2) of their importance weights w.",
              "run"),
     &RunDrift::kept_effective_sample_size, Needs::kKeptWeight},
    {GaugeRow("counterweight_drift_weight_mean",
              "Mean importance weight of the last batch.", "run"),
     &RunDrift::weight_mean, Needs::kWeight},
    {GaugeRow("counterweight_drift_weight_max",
              "Largest importance weight of the last batch.", "run"),
     &RunDrift::weight_max, Needs::kWeight},
    {GaugeRow("counterweight_drift_weight_high_ratio",
              "Share of the last batch's tokens with a weight above the upper "
              "bound.",
              "run"),
     &RunDrift::clipped_high, Needs::kWeight},
    {GaugeRow("counterweight_drift_weight_low_ratio",
              "Share of the last batch's tokens with a weight below the lower "
              "bound.",
              "run"),
     &RunDrift::clipped_low, Needs::kWeight},
    {GaugeRow("counterweight_drift_weight_outside_ratio",
              "Share of the last batch's tokens with a weight that the bounds "
              "truncated or masked.",
              "run"),
     &RunDrift::outside, Needs::kWeight},
    {GaugeRow("counterweight_drift_policy_version",
              "Version of the trained policy, from the last batch's label.",
              "run"),
     &RunDrift::policy_version, Needs::kPolicyVersion},
    {GaugeRow("counterweight_drift_step",
              "Optimizer step that the gauges of this run show, from the "
              "label.",
              "run"),
     &RunDrift::step, Needs::kStep},
    {GaugeRow("counterweight_drift_step_parts",
              "Batches of that step that this server has: of all ranks and "
              "micro-batches.",
              "run"),
     &RunDrift::step_parts, Needs::kStep},
    {GaugeRow("counterweight_drift_step_tokens",
              "Tokens that count, of that step's batches.", "run"),
     &RunDrift::step_tokens, Needs::kStep},
    {GaugeRow("counterweight_loss",
              "Policy loss of the last batch that had one, its KL penalty "
              "included.",
              "run"),
     &RunDrift::loss, Needs::kLoss},
    {GaugeRow("counterweight_loss_policy",
              "Policy loss of the last batch that had one, without its KL "
              "penalty.",
              "run"),
     &RunDrift::policy_loss, Needs::kLoss},
    {GaugeRow("counterweight_loss_ppo_kl_nats",
              "KL divergence of the old policy from the current one: the mean "
              "of -l over the kept tokens of the last batch that had a loss, "
              "where l is the log ratio of the loss.",
              "run"),
     &RunDrift::ppo_kl, Needs::kLoss},
    {GaugeRow(
         "counterweight_loss_clip_ratio",
         "Share of tokens clipped by the loss, in the last batch that had one.",
         "run"),
     &RunDrift::clip_fraction, Needs::kLoss},
    {GaugeRow("counterweight_loss_clip_high_ratio",
              "Share of the tokens, in the last batch that had a loss, with a "
              "ratio above the interval and a positive advantage.",
              "run"),
     &RunDrift::clip_high_fraction, Needs::kLoss},
    {GaugeRow("counterweight_loss_clip_low_ratio",
              "Share of the tokens, in the last batch that had a loss, with a "
              "ratio below the interval and a negative advantage.",
              "run"),
     &RunDrift::clip_low_fraction, Needs::kLoss},
    {GaugeRow("counterweight_loss_gradient_norm",
              "2-norm of the gradient by the current log-probs, over all "
              "tokens of the last batch that had a loss.",
              "run"),
     &RunDrift::gradient_norm, Needs::kLoss},
    {GaugeRow("counterweight_loss_gradient_clipped_ratio",
              "Share of the sum of absolute gradients that clipping took, in "
              "the last batch that had a loss.",
              "run"),
     &RunDrift::gradient_clipped_share, Needs::kLoss},
    {GaugeRow("counterweight_loss_gradient_rejected_ratio",
              "Share of the sum of absolute gradients on tokens that rules "
              "dropped, in the last batch that had a loss.",
              "run"),
     &RunDrift::gradient_rejected_share, Needs::kLoss},
    {GaugeRow("counterweight_loss_kl_penalty",
              "KL penalty of the last batch that had one, without its "
              "coefficient.",
              "run"),
     &RunDrift::kl_penalty, Needs::kKlPenalty},
    {GaugeRow("counterweight_loss_kl_nats",
              "KL divergence from the reference policy, of the last batch "
              "that had a KL penalty: the mean of its estimator over the "
              "penalty's tokens.",
              "run"),
     &RunDrift::loss_kl, Needs::kKlPenalty},
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_TABLE_H_
