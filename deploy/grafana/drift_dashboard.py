"""The dashboard of drift, by run."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard
from panels import Panel, Query, Row, Scale, page, variable

SELECTED = '{job=~"$job",run=~"$run"}'
# Window of dropped tokens and heat maps: batches come seconds to an hour apart.
WINDOW = "$__rate_interval"


def of_run(gauge: str, function: str = "avg", by: str = "run") -> str:
    """Returns a gauge by run; several servers may correct for one run."""
    return f"{function} by ({by}) (counterweight_drift_{gauge}{SELECTED})"


def rate(counter: str, by: str = "run") -> str:
    return f"sum by ({by}) (rate(counterweight_drift_{counter}{SELECTED}[{WINDOW}]))"


def share(counter: str, of: str) -> str:
    """Returns the dropped share of a run, by rule."""
    return f"{rate(counter, 'run, rule')} / on (run) group_left {rate(of)}"


def buckets(histogram: str) -> str:
    return f"sum by (le) (increase(counterweight_drift_{histogram}_bucket{SELECTED}[{WINDOW}]))"


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
            "Of the runs' last batches, in nats per token.",
            [Query(f"max(counterweight_drift_k3_nats{SELECTED})")],
            kind="stat",
            width=5,
        ),
        Panel(
            "Smallest effective sample size",
            "Of the runs' last batches, as a share of the tokens.",
            [Query(f"min(counterweight_drift_effective_sample_size_ratio{SELECTED})")],
            unit="percentunit",
            kind="stat",
            width=5,
        ),
        Panel(
            "Smallest share of tokens kept",
            "Of the runs' last batches.",
            [Query(f"min(counterweight_drift_kept_token_ratio{SELECTED})")],
            unit="percentunit",
            kind="stat",
            width=5,
        ),
    ],
)


def of_loss(gauge: str) -> str:
    return f"avg by (run) (counterweight_loss{gauge}{SELECTED})"


DRIFT = Row(
    "Drift of the last batch",
    [
        Panel(
            "KL divergence, k3",
            "Mean of exp(l) - 1 - l over the tokens, where l is the log ratio: never negative. Compare "
            "it with the run's own level while engine and trainer are in step.",
            [Query(of_run("k3_nats"), "{{run}}")],
            scale=Scale.LOG,
        ),
        Panel(
            "KL divergence, k1",
            "Mean of -l over the tokens: noisy, may be negative. k3 - k1 is the mean ratio less 1, which "
            "should be near 0.",
            [Query(of_run("kl_nats"), "{{run}}")],
        ),
        Panel(
            "k3 as a multiple of the calm level",
            "The calm level is the lowest tenth of the run's last day, which the rules in "
            "deploy/prometheus record. The alert looks at this number.",
            [
                Query(
                    'avg by (run) (run:counterweight_drift_k3_nats:avg{job=~"$job",run=~"$run"} '
                    '/ run:counterweight_drift_k3_nats:calm1d{job=~"$job",run=~"$run"})',
                    "{{run}}",
                )
            ],
            minimum=0,
        ),
        Panel(
            "Perplexity ratio",
            "Perplexity under the trainer over that under the engine; 1 = equal.",
            [Query(of_run("ppl_ratio"), "{{run}}")],
        ),
        Panel(
            "chi2 by token",
            "Variance that unbounded weights of tokens would have.",
            [Query(of_run("chi2_token"), "{{run}}")],
            scale=Scale.SYMMETRIC_LOG,
            linear_below=0.01,
        ),
        Panel(
            "chi2 by sequence",
            "Variance that unbounded weights of sequences would have; it explodes with length.",
            [Query(of_run("chi2_sequence"), "{{run}}")],
            scale=Scale.SYMMETRIC_LOG,
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
    "Importance weights of the last batch",
    [
        Panel(
            "Effective sample size",
            "The share of the batch that is left, statistically, after weighting; 1 = on-policy.",
            [Query(of_run("effective_sample_size_ratio"), "{{run}}")],
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            "Tokens with a weight outside its bounds",
            "Above the upper bound truncation begins to bias.",
            [
                Query(of_run("weight_high_ratio"), "{{run}} high"),
                Query(of_run("weight_low_ratio"), "{{run}} low"),
                Query(of_run("weight_outside_ratio"), "{{run}} truncated or masked"),
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Weight: mean and largest",
            "The mean of unbounded weights is 1.",
            [
                Query(of_run("weight_mean"), "{{run}} mean"),
                Query(of_run("weight_max", "max"), "{{run}} largest"),
            ],
        ),
    ],
)

STALENESS = Row(
    "Staleness",
    [
        Panel(
            "Staleness by token",
            "How many tokens of the selected runs were sampled how many versions before the trained policy. Of runs "
            "whose requests tell the versions of tokens.",
            [Query(buckets("staleness_versions"), "{{le}}")],
            kind="heat map",
        ),
        Panel(
            "KL divergence by staleness",
            "k3 of the last batch's tokens by staleness in versions: what a lag of the engine costs.",
            [Query(of_run("staleness_k3_nats", "avg", "run, staleness"), "{{run}} {{staleness}}")],
            scale=Scale.LOG,
        ),
        Panel(
            "Tokens by staleness",
            "Share of the tokens by staleness in versions.",
            [
                Query(
                    f"{rate('staleness_tokens_total', 'run, staleness')} / on (run) group_left "
                    f"{rate('staleness_tokens_total')}",
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
            "Share of the last batch's tokens in the keep mask. Near 0 the rules' intervals do not fit "
            "the drift.",
            [Query(of_run("kept_token_ratio"), "{{run}}")],
            unit="percentunit",
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Tokens dropped, by rule",
            "Share of the tokens that a rule dropped, or whose weight it set to 0.",
            [Query(share("dropped_tokens_total", "tokens_total"), "{{run}} {{rule}}")],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Sequences with a dropped token, by rule",
            "Share of the sequences with a token that a rule dropped, or whose weight it set to 0.",
            [Query(share("dropped_sequences_total", "sequences_total"), "{{run}} {{rule}}")],
            unit="percentunit",
            minimum=0,
        ),
    ],
)

LOSS = Row(
    "Policy loss of the last batch",
    [
        Panel(
            "Loss",
            "Of runs whose batches ask for a loss, KL penalty included.",
            [Query(of_loss(""), "{{run}}")],
        ),
        Panel(
            "Gradient norm",
            "2-norm of the gradient by the current log-probs, over all tokens.",
            [Query(of_loss("_gradient_norm"), "{{run}}")],
            scale=Scale.LOG,
        ),
        Panel(
            "Clipped tokens",
            "Share of the tokens of which the loss took the clipped branch; high: ratio above the interval and A > 0, "
            "low: below it and A < 0.",
            [
                Query(of_loss("_clip_ratio"), "{{run}} clipped"),
                Query(of_loss("_clip_high_ratio"), "{{run}} high"),
                Query(of_loss("_clip_low_ratio"), "{{run}} low"),
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Gradient lost",
            "What clipping took from the sum of absolute gradients, and what lies on tokens that rules dropped.",
            [
                Query(of_loss("_gradient_clipped_ratio"), "{{run}} clipped"),
                Query(of_loss("_gradient_rejected_ratio"), "{{run}} dropped"),
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "KL of old and current policy",
            "Mean of -l over the kept tokens, where l is the log ratio of the loss, in nats.",
            [Query(of_loss("_ppo_kl_nats"), "{{run}}")],
        ),
        Panel(
            "KL from the reference",
            "Of runs with a KL penalty: the mean of its estimator in nats, and the penalty without its coefficient.",
            [
                Query(of_loss("_kl_nats"), "{{run}} mean"),
                Query(of_loss("_kl_penalty"), "{{run}} penalty"),
            ],
        ),
    ],
)

FLOW = Row(
    "What came",
    [
        Panel(
            "Batches",
            "Batches corrected per minute.",
            [Query(f"60 * {rate('batches_total')}", "{{run}}")],
            unit="opm",
            minimum=0,
            width=6,
        ),
        Panel(
            "Tokens",
            "Tokens that count, of the corrected batches, per second.",
            [Query(rate("tokens_total"), "{{run}}")],
            unit="cps",
            minimum=0,
            width=6,
        ),
        Panel(
            "Policy version",
            "Of the trained policy, as the requests' label tells it: a run that stands still shows here.",
            [Query(of_run("policy_version", "max"), "{{run}}")],
            width=6,
        ),
        Panel(
            "Non-finite tokens",
            "Tokens per second that were dropped or neutralized because a number was not finite: the "
            "engine or the trainer has a bug.",
            [Query(rate("non_finite_tokens_total"), "{{run}}")],
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
