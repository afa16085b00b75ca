"""Tables and bars on the terminal."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from counterweight_rl.correction import Progress as Report
from counterweight_rl.result import Result, Staleness

# Where no terminal has a width, so that no sentence is broken into lines.
_WIDTH = 140
# Tables fit into the narrowest usual terminal, and into a page of documentation.
_TABLE_WIDTH = 80
# The metrics of native methods that are shown: name, title, whether it is a share.
_DRIFT = (
    ("kl", "KL divergence, k1 (nats per token)", False),
    ("k3", "KL divergence, k3 (nats per token)", False),
    ("chi2_token", "chi2 by token", False),
    ("ppl_ratio", "perplexity, trainer over engine", False),
    ("effective_sample_size", "effective sample size", True),
    ("weight_max", "largest weight", False),
    ("weight_clipped_high_fraction", "weights above their bound", True),
    ("weight_zero_fraction", "weights that are 0", True),
    ("kept_token_fraction", "tokens kept", True),
    ("kept_sequence_fraction", "sequences kept", True),
    ("kept_effective_sample_size", "kept effective sample size", True),
)


def console(*, to_stderr: bool = False) -> Console:
    """A console that prints text as it is, without markup."""
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def share(value: float) -> str:
    """A fraction in percent, with three digits; only exactly 0 and 1 are "0 %" and "100 %"."""
    if math.isnan(value):
        return "-"
    percent = number(100 * value)
    return ">99.9 %" if value < 1 and percent == "100" else f"{percent} %"


def number(value: float) -> str:
    """A number with three significant digits, integers with all; "-" for NaN."""
    if math.isnan(value):
        return "-"
    if math.isfinite(value) and (value == int(value) or abs(value) >= 1000):
        return f"{value:.0f}" if abs(value) < 1e9 else f"{value:.2e}"
    return f"{value:#.3g}".rstrip(".")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: int = 1,
    *,
    show_lines: bool = False,
) -> Table:
    """A table with text in its first ``left`` columns and numbers, never broken, in the others."""
    made = Table(show_edge=False, pad_edge=False, show_lines=show_lines)
    for index, column in enumerate(columns):
        text = index < left
        made.add_column(
            column, justify="left" if text else "right", overflow="fold", no_wrap=not text
        )
    for row in rows:
        made.add_row(*row)
    return made


def print_table(where: Console, title: str, made: Table) -> None:
    """Prints a title and a table of at most 80 columns, without blanks at the ends of lines."""
    with where.capture() as captured:
        if title:
            where.print(title, style="bold", soft_wrap=True)
        where.print(made, width=min(where.width, _TABLE_WIDTH))
    for line in captured.get().splitlines():
        print(line.rstrip(), file=where.file)


def drift_table(result: Result[Any], *, all_metrics: bool) -> Table:
    """The drift and the effect of one correction."""
    metrics = result.metrics
    known = [row for row in _DRIFT if row[0] in metrics]
    rows: list[tuple[str, str, str]] = []
    if result.loss is not None:
        rows.append(("loss", number(result.loss), "policy loss"))
    if all_metrics or not known:
        rows += [(name, number(value), "") for name, value in sorted(metrics.items())]
    else:
        rows += [
            (name, share(metrics[name]) if is_share else number(metrics[name]), words)
            for name, words, is_share in known
        ]
    for rule in result.rules:
        dropped = f"{rule.dropped_tokens} tokens"
        words = f"dropped, in {rule.dropped_sequences} sequences"
        rows.append((f"rule {rule.name}", dropped, words))
    rows += _staleness_rows(result.staleness)
    if result.non_finite_tokens:
        rows.append(("non_finite_tokens", str(result.non_finite_tokens), "NaN or infinite"))
    made = Table(show_edge=False, pad_edge=False)
    made.add_column("metric", overflow="fold")
    made.add_column("value", justify="right", no_wrap=True)
    made.add_column("meaning", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def _staleness_rows(staleness: Staleness | None) -> list[tuple[str, str, str]]:
    if staleness is None:
        return []
    unknown = f"mean; {staleness.unknown_tokens} tokens of unknown versions"
    return [
        ("staleness", number(staleness.mean), unknown),
        *(
            (f"staleness {b.label}", f"{b.tokens} tokens", f"kl {number(b.kl)}, k3 {number(b.k3)}")
            for b in staleness.buckets
            if b.tokens
        ),
    ]


def result_json(result: Result[Any]) -> str:
    """Everything but the arrays. JSON has no NaN: such are null."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    fields: dict[str, Any] = {
        "request_id": result.request_id,
        "backend": result.backend,
        "numerics_version": result.numerics_version,
        "metrics": {name: finite(value) for name, value in sorted(result.metrics.items())},
        "non_finite_tokens": result.non_finite_tokens,
        "warnings": list(result.warnings),
        "rules": [
            {
                "name": rule.name,
                "dropped_tokens": rule.dropped_tokens,
                "dropped_sequences": rule.dropped_sequences,
            }
            for rule in result.rules
        ],
    }
    if result.loss is not None:
        fields["loss"] = finite(result.loss)
    if (staleness := result.staleness) is not None:
        fields["staleness"] = {
            "mean": finite(staleness.mean),
            "max": staleness.max,
            "unknown_tokens": staleness.unknown_tokens,
            "buckets": {
                b.label: {"tokens": b.tokens, "kl": finite(b.kl), "k3": finite(b.k3)}
                for b in staleness.buckets
            },
        }
    return json.dumps(fields, indent=2)


class Bar:
    """A progress bar on stderr."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def stage(self, words: str) -> None:
        """Begins a stage of unknown length."""
        self._progress.reset(self._task, total=None, description=words)

    def count(self, done: int, total: int, words: str) -> None:
        """Shows how much of a stage is done."""
        self._progress.update(self._task, description=words, completed=done, total=total)

    def sent(self, words: str) -> Report:
        """Returns the ``progress=`` of a correction."""

        def show(sent: int, total: int) -> None:
            self.count(sent, max(total, 1), words)

        return show


@contextlib.contextmanager
def bar() -> Iterator[Bar]:
    """A bar that is erased at the end; nothing where stderr is no terminal."""
    where = console(to_stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=where, transient=True)
    # Elsewhere rich 13.0 prints an empty line at the end, though nothing was drawn.
    with progress if where.is_terminal else contextlib.nullcontext():
        yield Bar(progress)


def print_warnings(where: Console, warnings: Mapping[str, Sequence[str]]) -> None:
    """Prints each warning once, after the methods that it is about."""
    for method, texts in warnings.items():
        for text in texts:
            where.print(f"{method}: warning: {text}" if method else f"warning: {text}")
