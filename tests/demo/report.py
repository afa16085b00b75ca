"""Effects of a method on a step, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import counterweight_rl as cw
import numpy as np
from rollouts import Step


@dataclass(frozen=True)
class Trial:
    """A method that the demo tries.

    Attributes:
        label: Label of the tables and curves.
        run: Label of its drift metrics in Prometheus.
        explanation: One line.
        effective_sample_size: Its name among this method's metrics.
    """

    label: str
    run: str
    method: cw.Method
    explanation: str
    effective_sample_size: str = "effective_sample_size"


@dataclass(frozen=True)
class Outcome:
    """One method on one step; shares are fractions of what counts in the response mask."""

    metrics: dict[str, float]
    effective_sample_size: float
    dropped_tokens: float
    dropped_sequences: float


def outcome(trial: Trial, step: Step, result: cw.Result[Any]) -> Outcome:
    dropped = step.batch["response_mask"] - result.keep_mask
    # No response of the data is empty, which reduceat does not support.
    lengths = step.batch["sequence_lengths"].astype(np.int64)
    by_sequence = np.add.reduceat(dropped.astype(np.int64), np.cumsum(lengths) - lengths)
    return Outcome(
        metrics=result.metrics,
        effective_sample_size=result.metrics[trial.effective_sample_size],
        dropped_tokens=float(dropped.sum()) / step.tokens(),
        dropped_sequences=float(np.count_nonzero(by_sequence)) / len(lengths),
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first two columns to the left, numbers to the right; heads may have several lines."""
    heads = [head.split("\n") for head in header]
    height = max(map(len, heads))
    padded = [[""] * (height - len(head)) + head for head in heads]
    lines = [*map(list, zip(*padded, strict=True)), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  "
        + "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def engine(step: Step) -> str:
    return step.engine if step.lag == "constant" else f"{step.engine}, {step.lag}"


def drift_table(steps: Sequence[Step], outcomes: Sequence[Outcome]) -> str:
    """`outcomes`: token_tis on each step."""
    header = [
        "step",
        "engine",
        "behind",
        "tokens",
        "KL, k1",
        "KL, k3",
        "chi2",
        "ESS",
    ]
    rows = []
    for step, done in zip(steps, outcomes, strict=True):
        m = done.metrics
        rows.append(
            [
                step.name,
                engine(step),
                f"{step.staleness:.2f}",
                str(step.tokens()),
                f"{m['kl']:.6f}",
                f"{m['k3']:.6f}",
                f"{m['chi2_token']:.5f}",
                f"{100 * done.effective_sample_size:.2f} %",
            ]
        )
    return table(header, rows)


def dropped_table(
    steps: Sequence[Step], trials: Sequence[Trial], outcomes: Sequence[Sequence[Outcome]]
) -> str:
    """`outcomes`: [trials][steps]."""
    header = ["step", "engine", "behind", "at bound"]
    for trial in trials[1:]:
        words = trial.label.replace(" ", "\n")
        header += [f"{words}\ntokens", "seqs"]
    rows = []
    for i, step in enumerate(steps):
        truncated = outcomes[0][i].metrics["weight_clipped_high_fraction"]
        row = [step.name, engine(step), f"{step.staleness:.2f}", f"{100 * truncated:.2f} %"]
        for of_trial in outcomes[1:]:
            row += [f"{100 * of_trial[i].dropped_tokens:.1f} %"]
            row += [f"{100 * of_trial[i].dropped_sequences:.1f} %"]
        rows.append(row)
    return table(header, rows)
