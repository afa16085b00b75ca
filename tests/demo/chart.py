"""Draws drift and each method's dropped share against staleness in one picture."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from report import Outcome, Trial
from rollouts import Step

# Wong (Nature Methods, 2011): distinguishable with colour blindness.
COLOURS = ("#0072B2", "#E69F00", "#009E73")
INK = "#333333"
MARKERS = {"bf16": "o", "int8": "s", "int4": "D"}

Points = Sequence[float]


def kind(step: Step) -> tuple[str, bool]:
    """Returns the marker, and whether it is filled: hollow if a step's tokens are unequally
    stale."""
    return MARKERS[step.engine], step.lag == "constant"


def curve(axes: Axes, steps: Sequence[Step], values: Points, colour: str, label: str) -> None:
    """Draws a line through the bf16 steps of constant lag, and a marker for every step."""
    line = [
        (step.staleness, value)
        for step, value in zip(steps, values, strict=True)
        if step.engine == "bf16" and step.lag == "constant"
    ]
    axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.8, label=label)
    for step, value in zip(steps, values, strict=True):
        marker, filled = kind(step)
        axes.plot(
            step.staleness,
            value,
            marker=marker,
            markersize=6,
            color=colour,
            markerfacecolor=colour if filled else "white",
            linestyle="none",
            clip_on=False,
            zorder=3,
        )


def marker_key(steps: Sequence[Step]) -> list[Line2D]:
    keys = {}
    for step in steps:
        marker, filled = kind(step)
        name = f"{step.engine} engine" if filled else f"{step.engine}, staleness not constant"
        keys[name] = Line2D(
            [],
            [],
            marker=marker,
            color=INK,
            markerfacecolor=INK if filled else "white",
            linestyle="none",
            label=name,
        )
    return list(keys.values())


def finish(axes: Axes, title: str, ylabel: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("mean staleness (policy versions)")
    axes.set_ylabel(ylabel)
    axes.set_xlim(-0.1, 4.15)
    axes.set_xticks(range(5))
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="best")


def draw(
    path: pathlib.Path,
    steps: Sequence[Step],
    trials: Sequence[Trial],
    outcomes: Sequence[Sequence[Outcome]],
) -> None:
    """Saves the picture. `outcomes`: [trials][steps], token_tis first."""

    def values(trial: int, of: Callable[[Outcome], float]) -> list[float]:
        return [of(done) for done in outcomes[trial]]

    figure, grid = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    drift, sample, tokens, sequences = grid.flat

    curve(drift, steps, values(0, lambda o: o.metrics["kl"]), COLOURS[0], "k1: mean of -l")
    curve(
        drift, steps, values(0, lambda o: o.metrics["k3"]), COLOURS[1], "k3: mean of exp(l) - 1 - l"
    )
    drift.set_yscale("log")
    finish(drift, "Drift, KL(rollout || old), by l = old - rollout log-prob", "KL (nats per token)")

    # Methods with the same weights share a curve.
    sharing: dict[tuple[float, ...], list[int]] = {}
    for i, trial in enumerate(trials):
        size = values(i, lambda o: 100 * o.effective_sample_size)
        sharing.setdefault(tuple(size), []).append(i)
        dropped = values(i, lambda o: 100 * o.dropped_tokens)
        curve(tokens, steps, dropped, COLOURS[i], trial.label)
        rows = values(i, lambda o: 100 * o.dropped_sequences)
        curve(sequences, steps, rows, COLOURS[i], trial.label)
    for shared, indices in sharing.items():
        names = ", ".join(trials[i].label for i in indices)
        curve(sample, steps, shared, COLOURS[indices[0]], f"weights of {names}")
    for axes in (sample, tokens, sequences):
        axes.set_ylim(-2, 102)
    finish(sample, "Effective sample size", "share of tokens (%)")
    finish(tokens, "Dropped tokens", "share of tokens (%)")
    finish(sequences, "Sequences with a dropped token", "share of sequences (%)")

    figure.suptitle("Nine training steps, corrected by Counterweight", fontsize=13)
    figure.legend(handles=marker_key(steps), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
