"""Several methods on one batch."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from counterweight_rl.cli import display
from counterweight_rl.cli.batch_file import BatchFile
from counterweight_rl.cli.problems import InputError, invalid
from counterweight_rl.client import Client

# Each of several methods reads other arrays of the file.
_UNREAD = "but this method does not read it"


@dataclass(frozen=True)
class Outcome:
    """The effect of a method on a batch; shares are of the tokens or rows that the mask has.

    Attributes:
        method: Name of the preset.
        dropped_tokens: Share of the tokens that leave the keep mask.
        dropped_sequences: Share of the sequences without a kept token.
        zero_weights: Share of the tokens that stay with a weight of 0.
        effective_sample_size: See kernels/README.md.
        kl: k1 over the batch, nats per token.
        k3: The same.
        weights: Of the tokens that stay; None if the method has none.
        warnings: The answer's, but for those about arrays that the method does not read.
    """

    method: str
    dropped_tokens: float
    dropped_sequences: float
    zero_weights: float
    effective_sample_size: float
    kl: float
    k3: float
    weights: Any
    warnings: tuple[str, ...]


def compare(client: Client, batch: BatchFile, methods: Sequence[str]) -> list[Outcome]:
    """Corrects the batch with each method.

    Raises:
        InputError: A method does not exist, or needs what the file lacks.
    """
    outcomes = []
    with display.bar() as bar:
        for index, method in enumerate(methods):
            bar.count(index, len(methods), f"correcting with {method}")
            try:
                result = client.correct(method=method, metrics=True, **batch.arguments())
            except (ValueError, TypeError) as error:
                problem = str(invalid(error, batch.path)).removeprefix("method: ")
                raise InputError(f"--methods {method}: {problem}") from error
            outcomes.append(_outcome(method, batch, result))
    return outcomes


def _outcome(method: str, batch: BatchFile, result: Any) -> Outcome:
    counts = batch.mask != 0
    kept = result.keep_mask != 0
    tokens = max(int(counts.sum()), 1)
    weights = None if result.weights is None else result.weights[kept]
    metrics = result.metrics
    return Outcome(
        method=method,
        dropped_tokens=1 - int(kept.sum()) / tokens,
        dropped_sequences=1 - metrics.get("kept_sequence_fraction", math.nan),
        zero_weights=0.0 if weights is None else int((weights == 0).sum()) / tokens,
        effective_sample_size=metrics.get("effective_sample_size", math.nan),
        kl=metrics.get("kl", math.nan),
        k3=metrics.get("k3", math.nan),
        weights=weights,
        warnings=tuple(w for w in result.warnings if not w.endswith(_UNREAD)),
    )


def outcome_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """A row for each method."""
    columns = (
        "method",
        "tokens dropped",
        "sequences dropped",
        "weights of 0",
        "ESS",
        "KL (k1)",
        "KL (k3)",
    )
    rows = [
        (
            each.method,
            display.share(each.dropped_tokens),
            display.share(each.dropped_sequences),
            display.share(each.zero_weights),
            display.share(each.effective_sample_size),
            display.number(each.kl),
            display.number(each.k3),
        )
        for each in outcomes
    ]
    return display.table(title, columns, rows)


def outcomes_json(outcomes: Sequence[Outcome]) -> str:
    """The rows without the weights."""
    rows = []
    for each in outcomes:
        row = {name: value for name, value in asdict(each).items() if name != "weights"}
        rows.append({n: None if v != v else v for n, v in row.items()})
    return json.dumps(rows, indent=2)


def draw(path: pathlib.Path, title: str, outcomes: Sequence[Outcome]) -> None:
    """Writes a picture in the format that the suffix names.

    Raises:
        ModuleNotFoundError: There is no matplotlib.
        OSError: The file cannot be written.
        ValueError: matplotlib does not know the suffix.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 1.6 + 0.45 * max(len(outcomes), 4)), layout="constrained")
    FigureCanvasAgg(figure)
    shares, sizes, histogram = figure.subplots(1, 3)
    names = [each.method for each in outcomes]
    places = np.arange(len(names))
    drawn = (
        ("tokens dropped", -0.27, [each.dropped_tokens for each in outcomes]),
        ("sequences dropped", 0.0, [each.dropped_sequences for each in outcomes]),
        ("weights of 0", 0.27, [each.zero_weights for each in outcomes]),
    )
    for label, offset, values in drawn:
        shares.barh(places + offset, [100 * value for value in values], 0.25, label=label)
    shares.set_title("taken out of the loss, %", loc="left", fontsize=10)
    shares.set_xlim(0, 100)
    shares.legend(fontsize=8, frameon=False)
    sizes.barh(places, [100 * each.effective_sample_size for each in outcomes], 0.6)
    sizes.set_title("effective sample size, %", loc="left", fontsize=10)
    sizes.set_xlim(0, 100)
    for axes in (shares, sizes):
        axes.set_yticks(places, names, fontsize=8)
        axes.invert_yaxis()
    for each in outcomes:
        if each.weights is not None and (each.weights > 0).any():
            positive = np.log2(each.weights[each.weights > 0])
            histogram.hist(positive, 60, histtype="step", density=True, label=each.method)
    histogram.set_yscale("log")
    histogram.set_title("density of log2 of the kept tokens' weights", loc="left", fontsize=10)
    if histogram.get_legend_handles_labels()[0]:
        histogram.legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)
