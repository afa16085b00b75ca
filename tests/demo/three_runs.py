"""Three runs over the same steps: a healthy one, one with a fault in its data, one that never corrects."""

from __future__ import annotations

import collections
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import counterweight_rl as cw
import numpy as np
from report import table
from rollouts import Step

METHOD = "token_tis"


@dataclass(frozen=True)
class Run:
    """A run of the demo.

    Attributes:
        name: Its label.
        is_late: Its trainer's log-probs lie one token late.
        is_corrected: Its loss multiplies by the weights that it gets.
    """

    name: str
    is_late: bool = False
    is_corrected: bool = True


RUNS = (
    Run("demo-healthy"),
    Run("demo-late", is_late=True),
    Run("demo-uncorrected", is_corrected=False),
)


@dataclass(frozen=True)
class Seen:
    """The server's view of a run: states of steps and findings by name, and its last sentences."""

    name: str
    states: dict[str, int]
    findings: dict[str, int]
    sentences: list[str]


def late(step: Step) -> Step:
    """Gives each token the trainer's log-prob of the one before it, as a label shifted twice does."""
    old = step.batch["old_log_probs"].copy()
    starts = np.cumsum(step.batch["sequence_lengths"]) - step.batch["sequence_lengths"]
    first = old[starts]
    old[1:] = step.batch["old_log_probs"][:-1]
    old[starts] = first
    return replace(step, batch={**step.batch, "old_log_probs": old})


def train_as(client: cw.Client, run: Run, steps: Sequence[Step]) -> Seen:
    states: collections.Counter[str] = collections.Counter()
    findings: collections.Counter[str] = collections.Counter()
    sentences: dict[str, str] = {}
    for number, each in enumerate(steps):
        step = late(each) if run.is_late else each
        mask, lengths = step.batch["response_mask"], step.batch["sequence_lengths"]
        result = client.correct(**step.batch, method=METHOD, run=run.name, step=number)
        issued = cw.applied(result.weights, result.keep_mask, sequence_lengths=lengths)
        # The loss of the last run forgets both.
        weights = result.weights if run.is_corrected else None
        report = client.report_step(
            run=run.name,
            step=number,
            tokens=step.tokens(),
            issued=issued,
            applied=cw.applied(weights, mask, sequence_lengths=lengths),
        )
        states[str(report.state)] += 1
        for warning in report.warnings:
            sentences["report"] = f"{step.name}: {warning}"
        for finding in client.diagnose(**step.batch).findings:
            if finding.severity == "error":
                findings[finding.name] += 1
                sentences[finding.name] = f"{step.name}: {finding.sentence}"
    return Seen(run.name, dict(states), dict(findings), list(sentences.values()))


def counts(numbers: dict[str, int], total: int) -> str:
    return ", ".join(f"{name} {n} of {total}" for name, n in numbers.items()) or "nothing"


def runs_table(seen: Sequence[Seen], steps: int) -> str:
    header = ("run", "its weights, by step", "errors in its data, by step")
    return table(
        header,
        [(each.name, counts(each.states, steps), counts(each.findings, steps)) for each in seen],
    )


def sentences_of(seen: Sequence[Seen]) -> list[str]:
    """The last sentence of each kind, as paragraphs."""
    return [
        textwrap.fill(f"{each.name}, {text}", 80, initial_indent="  ", subsequent_indent="  ")
        for each in seen
        for text in each.sentences
    ]
