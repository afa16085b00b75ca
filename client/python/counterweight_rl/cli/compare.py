"""Several methods on one batch."""

from __future__ import annotations

import json
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from counterweight_rl.cli import display
from counterweight_rl.cli.batch_file import BatchFile
from counterweight_rl.cli.problems import InputError, invalid
from counterweight_rl.client import Client
from counterweight_rl.config import Preset

# Each of several methods reads other arrays of the file.
_UNREAD = "but this method does not read it"
# The advice below the table says it for the whole method.
_DROPS = re.compile(r"rule \S+ drops \d+ % of the tokens")
# From this share of dropped tokens on the table has an advice beneath.
_MUCH = 0.5


@dataclass(frozen=True)
class Outcome:
    """The effect of a method on a batch; shares are of the tokens or rows that the mask has.

    Attributes:
        method: Name of the preset, with its parameters where these are not the default.
        dropped_tokens: Share of the tokens that leave the keep mask.
        dropped_sequences: Share of the sequences without a kept token.
        truncated_weights: Share of the tokens whose weight is moved to its upper bound.
        zero_weights: Share of the tokens that stay with a weight of 0.
        effective_sample_size: See kernels/README.md.
        kept_effective_sample_size: The same.
        kl: k1 over the batch, nats per token.
        k3: The same.
        weights: Of the tokens that stay; None if the method has none.
        warnings: The answer's, but for those about arrays that the method does not read.
    """

    method: str
    dropped_tokens: float
    dropped_sequences: float
    truncated_weights: float
    zero_weights: float
    effective_sample_size: float
    kept_effective_sample_size: float
    kl: float
    k3: float
    weights: Any
    warnings: tuple[str, ...]


def compare(client: Client, batch: BatchFile, methods: Mapping[str, Preset]) -> list[Outcome]:
    """Corrects the batch with each method; the keys name them.

    Raises:
        InputError: A method does not exist, or needs what the file lacks.
    """
    outcomes = []
    with display.bar() as bar:
        for index, (name, method) in enumerate(methods.items()):
            bar.count(index, len(methods), f"correcting with {name}")
            try:
                result = client.correct(method=method, metrics=True, **batch.arguments())
            except (ValueError, TypeError) as error:
                problem = str(invalid(error, batch.path)).removeprefix("method: ")
                raise InputError(f"--methods {name}: {problem}") from error
            outcomes.append(outcome(name, batch, result))
    return outcomes


def outcome(method: str, batch: BatchFile, result: Any) -> Outcome:
    """The effect of a method, from its result with metrics."""
    counts = batch.mask != 0
    kept = result.keep_mask != 0
    tokens = max(int(counts.sum()), 1)
    weights = None if result.weights is None else result.weights[kept]
    metrics = result.metrics
    return Outcome(
        method=method,
        dropped_tokens=1 - int(kept.sum()) / tokens,
        dropped_sequences=1 - metrics.get("kept_sequence_fraction", math.nan),
        truncated_weights=metrics.get("weight_clipped_high_fraction", 0.0),
        zero_weights=0.0 if weights is None else int((weights == 0).sum()) / tokens,
        effective_sample_size=metrics.get("effective_sample_size", math.nan),
        kept_effective_sample_size=metrics.get("kept_effective_sample_size", math.nan),
        kl=metrics.get("kl", math.nan),
        k3=metrics.get("k3", math.nan),
        weights=weights,
        warnings=tuple(
            w for w in result.warnings if not w.endswith(_UNREAD) and not _DROPS.match(w)
        ),
    )


def show(where: Console, title: str, outcomes: Sequence[Outcome]) -> None:
    """Prints a row for each method, the drift, and advice where a rule drops most of the batch."""
    columns = (
        "method",
        "tokens\ndropped",
        "sequences\ndropped",
        "weights\nat bound",
        "weights\nof 0",
        "ESS",
        "kept\nESS",
    )
    rows = [
        (
            _lines(each.method),
            *map(
                display.share,
                (
                    each.dropped_tokens,
                    each.dropped_sequences,
                    each.truncated_weights,
                    each.zero_weights,
                    each.effective_sample_size,
                    each.kept_effective_sample_size,
                ),
            ),
        )
        for each in outcomes
    ]
    display.print_table(where, title, display.table(columns, rows))
    by_drift: dict[tuple[str, str], list[str]] = {}
    for each in outcomes:
        pair = (display.number(each.kl), display.number(each.k3))
        by_drift.setdefault(pair, []).append(each.method)
    for (kl, k3), methods in by_drift.items():
        of = f" ({', '.join(methods)})" if len(by_drift) > 1 else ""
        where.print(f"KL, nats per token: k1 {kl}, k3 {k3}{of}", soft_wrap=True)
    for each in outcomes:
        if each.dropped_tokens > _MUCH:
            dropped = display.share(each.dropped_tokens)
            advice = "counterweight suggest FILE prints wider bounds"
            where.print(f"{each.method} drops {dropped} of the tokens; {advice}", soft_wrap=True)


def _lines(method: str) -> str:
    """The name, and each parameter on a line of its own."""
    return method.replace(":", "\n  ")


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
    names = [_lines(each.method) for each in outcomes]
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
    of_all = [100 * each.effective_sample_size for each in outcomes]
    of_kept = [100 * each.kept_effective_sample_size for each in outcomes]
    sizes.barh(places, of_all, 0.6, color="tab:gray", alpha=0.35, label="of all tokens")
    sizes.barh(places, of_kept, 0.35, label="of kept tokens")
    below = (0.0, -0.08)
    sizes.legend(fontsize=8, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=below)
    sizes.set_title("effective sample size, % of all tokens", loc="left", fontsize=10)
    sizes.set_xlim(0, 100)
    for axes in (shares, sizes):
        axes.set_yticks(places, names, fontsize=8)
        axes.invert_yaxis()
    for each in outcomes:
        if each.weights is not None and (each.weights > 0).any():
            positive = np.log2(each.weights[each.weights > 0])
            histogram.hist(positive, 60, histtype="step", density=True, label=_lines(each.method))
    histogram.set_yscale("log")
    histogram.set_title("density of log2 of the kept tokens' weights", loc="left", fontsize=10)
    if histogram.get_legend_handles_labels()[0]:
        histogram.legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)
