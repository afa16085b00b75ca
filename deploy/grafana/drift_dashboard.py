"""The dashboard of drift, by run."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard
from panels import Panel, Query, Row, Scale, page, variable

SELECTED = '{job=~"$job",run=~"$run"}'
# Window of rates and heat maps: batches arrive seconds to an hour apart.
WINDOW = "$__rate_interval"
MATCH = "on (job, instance, run)"


def of_run(gauge: str, function: str) -> str:
    """Returns a gauge of the last batches of a run's servers, one or more."""
    return f"{function} by (run) (counterweight_{gauge}{SELECTED})"


def rate(counter: str, by: str = "run") -> str:
    return f"sum by ({by}) (rate(counterweight_{counter}{SELECTED}[{WINDOW}]))"


def mean(total: str, of: str = "drift_tokens_total", *, minus: str = "") -> str:
    """Returns the rate of a sum over that of its terms: the mean over batches of any size on any number of servers.

    Args:
        total: A counter of kRunSums in server/observe/run_sums_table.h, without its prefix.
        of: The counter of the terms, of servers that have ``total``.
        minus: A counter that is taken off ``total``, as one of negative parts.
    """
    above = f"({rate(total)} - {rate(minus)})" if minus else rate(total)
    terms = f"rate(counterweight_{of}{SELECTED}[{WINDOW}]) and {MATCH} counterweight_{total}"
    return f"{above} / (sum by (run) ({terms}) > 0)"


def effective_sample_size(kept: str = "") -> str:
    """Returns it of all tokens, or with "kept_" of those that rules left, as a share of all."""
    squared = f"clamp_min({rate(f'drift_{kept}weight_squared_sum_total')}, 1e-99)"
    tokens = f"rate(counterweight_drift_weighted_tokens_total{SELECTED}[{WINDOW}])"
    if kept:
        tokens += f" and {MATCH} counterweight_drift_{kept}weight_sum_total"
    return (
        f"{rate(f'drift_{kept}weight_sum_total')} ^ 2 / ({squared} * (sum by (run) ({tokens}) > 0))"
    )


def share(counter: str, of: str, by: str) -> str:
    """Returns the part of a run's terms that a rule dropped, or that have a staleness."""
    return f"{rate(counter, f'run, {by}')} / on (run) group_left () ({rate(of)} > 0)"


def buckets(histogram: str) -> str:
    return f"sum by (le) (increase(counterweight_drift_{histogram}_bucket{SELECTED}[{WINDOW}]))"


SEQUENCES = "drift_sequence_log_ratio_nats_count"
WEIGHTED = "drift_weighted_tokens_total"
LOSS_TOKENS = "loss_tokens_total"
GRADIENT = "loss_gradient_sum_total"

BATCHES = Row(
    "Runs",
    [
        Panel(
            "Runs",
            "Values of the label run that have series now.",
            [Query(f"count(count by (run) (counterweight_drift_batches_total{SELECTED}))")],
            kind="stat",
            width=4,
        ),
        Panel(
            "Tokens per second",
            "Tokens that count, of the corrected batches.",
            [Query(f"sum(rate(counterweight_drift_tokens_total{SELECTED}[{WINDOW}]))")],
            kind="stat",
            width=5,
        ),
        Panel(
            "Largest k3",
            "Of the last batches of all runs and servers, in nats per token.",
            [Query(f"max(counterweight_drift_k3_nats{SELECTED})")],
            kind="stat",
            width=5,
        ),
        Panel(
            "Smallest effective sample size",
            "Of the last batches of all runs and servers, as a share of the tokens.",
            [Query(f"min(counterweight_drift_effective_sample_size_ratio{SELECTED})")],
            unit="percentunit",
            kind="stat",
            width=5,
        ),
        Panel(
            "Smallest share of tokens kept",
            "Of the last batches of all runs and servers.",
            [Query(f"min(counterweight_drift_kept_token_ratio{SELECTED})")],
            unit="percentunit",
            kind="stat",
            width=5,
        ),
    ],
)


DRIFT = Row(
    "Drift",
    [
        Panel(
            "KL divergence, k3",
            "Mean of exp(l) - 1 - l over the tokens, where l is the log ratio: never negative. Compare "
            "it with the run's own level while engine and trainer are in step.",
            [Query(mean("drift_k3_sum_nats_total"), "{{run}}")],
            scale=Scale.LOG,
            width=6,
        ),
        Panel(
            "KL divergence by cause",
            "Parts of k3 of the servers' last examined batches: engine and staleness, the step's updates, and both together. "
            "Only the first is the engine's, and grows with the lag.",
            [
                Query(
                    f"avg by (run, cause) (counterweight_doctor_cause_k3_nats{SELECTED})",
                    "{{run}} {{cause}}",
                )
            ],
            width=6,
        ),
        Panel(
            "KL divergence, k1",
            "Mean of -l over the tokens: noisy, may be negative. k3 - k1 is the mean ratio less 1, which "
            "should be near 0.",
            [
                Query(
                    mean(
                        "drift_log_ratio_negative_nats_total",
                        minus="drift_log_ratio_positive_nats_total",
                    ),
                    "{{run}}",
                )
            ],
            width=6,
        ),
        Panel(
            "Eight steps as a multiple of the calm level",
            "The calm level is the lowest tenth of the run's last day, which the rules in "
            "deploy/prometheus record. Their alerts begin at 3 for k3, at 2 for what weights cost of the sample "
            "(one minus the effective sample size), and at 5 for one server, which hardly moves the mean.",
            [
                Query(
                    'avg by (run) (run:counterweight_drift_k3_nats:eight_steps{job=~"$job",run=~"$run"} '
                    '/ run:counterweight_drift_k3_nats:calm1d{job=~"$job",run=~"$run"})',
                    "{{run}}, k3",
                ),
                Query(
                    'avg by (run) (run:counterweight_drift_sample_size_loss:eight_steps{job=~"$job",run=~"$run"} '
                    '/ run:counterweight_drift_sample_size_loss:calm1d{job=~"$job",run=~"$run"})',
                    "{{run}}, sample",
                ),
                Query(
                    'max by (run) (instance_run:counterweight_drift_k3_nats:avg{job=~"$job",run=~"$run"} '
                    "/ on (job, run) group_left run:counterweight_drift_k3_nats:calm1d)",
                    "{{run}}, worst server",
                ),
            ],
            minimum=0,
            width=6,
        ),
        Panel(
            "Perplexity ratio",
            "Perplexity under the trainer over that under the engine; 1 = equal.",
            [Query(mean("drift_ppl_ratio_sum_total", SEQUENCES), "{{run}}")],
            width=6,
        ),
        Panel(
            "chi2 by token",
            "Variance that unbounded weights of tokens would have.",
            [Query(mean("drift_ratio_squared_sum_total") + " - 1", "{{run}}")],
            scale=Scale.SYMMETRIC_LOG,
            linear_below=0.01,
            width=6,
        ),
        Panel(
            "chi2 by sequence",
            "Variance that unbounded weights of sequences would have; it explodes with length.",
            [Query(mean("drift_sequence_ratio_squared_sum_total", SEQUENCES) + " - 1", "{{run}}")],
            scale=Scale.SYMMETRIC_LOG,
            width=6,
        ),
        Panel(
            "Engine and trainer, by audited rows",
            "Mean k3 between them, by the rows that a trainer had audited since the drift last changed, and its "
            "interval from 32 rows on. Of runs without audits there is none.",
            [
                Query(
                    f"max by (run, bound) (counterweight_doctor_audited_k3_nats{SELECTED})",
                    "{{run}} {{bound}}",
                )
            ],
            scale=Scale.LOG,
            width=6,
        ),
    ],
)

LOG_RATIOS = Row(
    "Log ratios",
    [
        Panel(
            "Log ratio by token",
            "How many tokens of the selected runs had which log ratio, in nats.",
            [Query(buckets("token_log_ratio_nats"), "{{le}}")],
            kind="heat map",
            width=12,
        ),
        Panel(
            "Mean log ratio by sequence",
            "How many sequences of the selected runs had which mean log ratio, in nats.",
            [Query(buckets("sequence_log_ratio_nats"), "{{le}}")],
            kind="heat map",
            width=12,
        ),
    ],
)

WEIGHTS = Row(
    "Importance weights",
    [
        Panel(
            "Effective sample size",
            "The share of the tokens that is left, statistically, after weighting, and after the rules "
            "too; 1 = on-policy.",
            [
                Query(effective_sample_size(), "{{run}}"),
                Query(effective_sample_size("kept_"), "{{run}} kept"),
            ],
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            "Tokens with a weight outside its bounds",
            "Above the upper bound truncation begins to bias.",
            [
                Query(mean("drift_weight_high_tokens_total", WEIGHTED), "{{run}} high"),
                Query(
                    mean(
                        "drift_weight_outside_tokens_total",
                        WEIGHTED,
                        minus="drift_weight_high_tokens_total",
                    ),
                    "{{run}} low",
                ),
                Query(
                    mean("drift_weight_outside_tokens_total", WEIGHTED),
                    "{{run}} truncated or masked",
                ),
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Weight: mean and largest",
            "The mean of unbounded weights is 1. The largest is that of the servers' last batches.",
            [
                Query(mean("drift_weight_sum_total", WEIGHTED), "{{run}} mean"),
                Query(of_run("drift_weight_max", "max"), "{{run}} largest"),
            ],
        ),
    ],
)

STALENESS = Row(
    "Staleness",
    [
        Panel(
            "Staleness by token",
            "Number of tokens of the selected runs by versions between the sampling and the trained policy. Of runs "
            "with the versions of tokens in their requests.",
            [Query(buckets("staleness_versions"), "{{le}}")],
            kind="heat map",
        ),
        Panel(
            "KL divergence by staleness",
            "k3 of the tokens by staleness in versions: what a lag of the engine costs.",
            [
                Query(
                    f"{rate('drift_staleness_k3_sum_nats_total', 'run, staleness')} / "
                    f"({rate('drift_staleness_tokens_total', 'run, staleness')} > 0)",
                    "{{run}} {{staleness}}",
                )
            ],
            scale=Scale.LOG,
        ),
        Panel(
            "Tokens by staleness",
            "Share of the tokens by staleness in versions.",
            [
                Query(
                    share(
                        "drift_staleness_tokens_total", "drift_staleness_tokens_total", "staleness"
                    ),
                    "{{run}} {{staleness}}",
                )
            ],
            unit="percentunit",
            minimum=0,
            maximum=1,
        ),
    ],
)

DROPPED = Row(
    "Dropped",
    [
        Panel(
            "Tokens kept",
            "Share of the tokens in the keep mask. Near 0 the rules' intervals do not fit "
            "the drift.",
            [Query(mean("drift_kept_tokens_total"), "{{run}}")],
            unit="percentunit",
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Tokens dropped, by rule",
            "Share of the tokens that a rule dropped or gave the weight 0.",
            [
                Query(
                    share("drift_dropped_tokens_total", "drift_tokens_total", "rule"),
                    "{{run}} {{rule}}",
                )
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Sequences with a dropped token, by rule",
            "Share of the sequences with a token that a rule dropped or gave the weight 0.",
            [
                Query(
                    share("drift_dropped_sequences_total", "drift_sequences_total", "rule"),
                    "{{run}} {{rule}}",
                )
            ],
            unit="percentunit",
            minimum=0,
        ),
    ],
)

LOSS = Row(
    "Policy loss",
    [
        Panel(
            "Loss",
            "Policy loss with its KL penalty, of runs that have one: the mean over the servers' last batches.",
            [Query(of_run("loss", "avg"), "{{run}}")],
        ),
        Panel(
            "Gradient norm",
            "2-norm of the gradient by the current log-probs over a batch: the largest of the servers' last batches.",
            [Query(of_run("loss_gradient_norm", "max"), "{{run}}")],
            scale=Scale.LOG,
        ),
        Panel(
            "Clipped tokens",
            "Share of the tokens with the loss's clipped branch; high: ratio above the interval and A > 0, "
            "low: below it and A < 0.",
            [
                Query(mean("loss_clipped_tokens_total", LOSS_TOKENS), "{{run}} clipped"),
                Query(mean("loss_clip_high_tokens_total", LOSS_TOKENS), "{{run}} high"),
                Query(mean("loss_clip_low_tokens_total", LOSS_TOKENS), "{{run}} low"),
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Gradient lost",
            "What clipping took from the sum of absolute gradients, and what lies on tokens that rules dropped.",
            [
                Query(mean("loss_gradient_clipped_sum_total", GRADIENT), "{{run}} clipped"),
                Query(mean("loss_gradient_rejected_sum_total", GRADIENT), "{{run}} dropped"),
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "KL of old and current policy",
            "Mean of -l over the kept tokens, where l is the log ratio of the loss, in nats.",
            [
                Query(
                    mean(
                        "loss_log_ratio_negative_nats_total",
                        "loss_kept_tokens_total",
                        minus="loss_log_ratio_positive_nats_total",
                    ),
                    "{{run}}",
                )
            ],
        ),
        Panel(
            "KL from the reference",
            "Of runs with a KL penalty: the mean of its estimator in nats, and the penalty without its coefficient, as the "
            "mean over the servers' last batches.",
            [
                Query(
                    mean(
                        "loss_kl_positive_nats_total",
                        "loss_kl_tokens_total",
                        minus="loss_kl_negative_nats_total",
                    ),
                    "{{run}} mean",
                ),
                Query(of_run("loss_kl_penalty", "avg"), "{{run}} penalty"),
            ],
        ),
    ],
)

FLOW = Row(
    "Traffic",
    [
        Panel(
            "Batches",
            "Batches corrected per minute.",
            [Query(f"60 * {rate('drift_batches_total')}", "{{run}}")],
            unit="opm",
            minimum=0,
            width=6,
        ),
        Panel(
            "Tokens",
            "Tokens that count, of the corrected batches, per second.",
            [Query(rate("drift_tokens_total"), "{{run}}")],
            unit="cps",
            minimum=0,
            width=6,
        ),
        Panel(
            "Policy version",
            "Version of the trained policy, from the requests' label: it stops growing when a run stalls.",
            [Query(of_run("drift_policy_version", "max"), "{{run}}")],
            width=6,
        ),
        Panel(
            "Non-finite tokens",
            "Tokens per second that were dropped or neutralized because a number was not finite: the "
            "engine or the trainer has a bug.",
            [Query(rate("drift_non_finite_tokens_total"), "{{run}}")],
            unit="cps",
            minimum=0,
            width=6,
        ),
    ],
)


def drift_dashboard() -> dashboard.Dashboard:
    return page(
        "counterweight-drift",
        "Counterweight: drift",
        "How far the policy that sampled is from the one that learns, by run, and what the correction "
        "did about it.",
        [
            variable("job", "Job", "label_values(counterweight_build_info, job)"),
            variable(
                "run", "Run", 'label_values(counterweight_drift_batches_total{job=~"$job"}, run)'
            ),
        ],
        [BATCHES, DRIFT, LOG_RATIOS, STALENESS, WEIGHTS, DROPPED, LOSS, FLOW],
    )
