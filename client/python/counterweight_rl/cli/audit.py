"""The audit of a folder as text."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence

from rich.console import Console

from counterweight_rl.audit.report import Causes, Drift, Effect, Report
from counterweight_rl.cli import display

TITLES = {
    "staleness": "versions behind",
    "cause": "cause",
    "step": "step",
    "version": "version that sampled",
    "position": "position in the response",
    "length": "tokens of the response",
    "replica": "replica",
}
"""The heads of the columns of keys."""
_MOST_ROWS = 12
_MOST_LISTED = 20


def label(key: str, value: str) -> str:
    """The value of a key for people."""
    if not value.isdigit():
        return value
    if key == "length":
        return f"up to {value}"
    return f"from {value}" if key == "position" else value


def shown(rows: Sequence[Drift]) -> Iterator[Drift | None]:
    """At most ``_MOST_ROWS`` of many rows, evenly, with the first and the last; None: a gap."""
    if len(rows) <= _MOST_ROWS:
        yield from rows
        return
    last = -1
    for i in range(_MOST_ROWS):
        place = round(i * (len(rows) - 1) / (_MOST_ROWS - 1))
        if place > last + 1:
            yield None
        yield rows[place]
        last = place


def show(where: Console, place: str, found: Report) -> None:
    """Prints the tables, findings and problems."""
    head = f"{place}: {_count(found.files, 'file')}, {_count(found.units, 'row group')}"
    if found.whole is None:
        where.print(f"{head}, and no token that was audited", soft_wrap=True)
    else:
        _show_numbers(where, head, found, found.whole)
    _show_faults(where, found)
    _show_problems(where, found)
    where.print(f"digest {found.digest}")


def _show_numbers(where: Console, head: str, found: Report, whole: Drift) -> None:
    head += f", {_count(whole.sequences or 0, 'sequence')}, {_count(whole.tokens, 'token')}"
    where.print(head, soft_wrap=True)
    ppl = display.number(found.metrics["ppl_ratio"])
    where.print(
        f"KL, nats per token: k1 {display.number(whole.kl)}, k3 {display.number(whole.k3)}; "
        f"chi2 {display.number(whole.chi2)}; perplexity, trainer over engine {ppl}",
        soft_wrap=True,
    )
    for name, words in (
        ("non_finite_tokens", "NaN or infinite, left out"),
        ("positive_log_probs", "log-probs above 0"),
    ):
        if found.metrics.get(name):
            where.print(f"tokens with {words}: {found.metrics[name]:.0f}", soft_wrap=True)
    for key, rows in found.drift.items():
        where.print()
        of_tokens = key == "staleness"
        columns = [TITLES[key], "tokens", "sequences", "KL (k1)", "KL (k3)", "chi2"]
        kept = [0, 1, 3, 4] if of_tokens else range(6)
        cells = (["..."] * 6 if row is None else _cells(key, row) for row in shown(rows))
        made = display.table([columns[i] for i in kept], ([c[i] for i in kept] for c in cells))
        display.print_table(where, f"Drift by {TITLES[key]}", made)
        if key == "cause" and found.causes is not None:
            where.print(causes(found.causes), soft_wrap=True)
    if found.effects:
        where.print()
        title = "What methods would have done, to all rows"
        display.print_table(where, title, display.table(EFFECT_HEADS, map(effect, found.effects)))


def causes(of: Causes) -> str:
    """The sentence of what the drift is due to."""
    if of.engine is None or of.staleness is None:
        return f"k3 by cause: needs 200 tokens that are not stale, and has {of.fresh_tokens:,}"
    parts = f"engine {display.number(of.engine)}, staleness {display.number(of.staleness)}"
    return f"k3 {display.number(of.k3)} = {parts}"


def _cells(key: str, row: Drift) -> list[str]:
    sequences = "" if row.sequences is None else str(row.sequences)
    numbers = map(display.number, (row.kl, row.k3, row.chi2))
    return [label(key, row.value), str(row.tokens), sequences, *numbers]


EFFECT_HEADS = (
    "method",
    "tokens\ndropped",
    "sequences\ndropped",
    "weights\nat bound",
    "weights\nof 0",
    "ESS",
    "kept\nESS",
)
"""The heads of the columns of ``effect``."""


def effect(each: Effect) -> list[str]:
    """The row of a method."""
    of = each.metrics
    shares = (
        1 - of.get("kept_token_fraction", math.nan),
        1 - of.get("kept_sequence_fraction", math.nan),
        of.get("weight_clipped_high_fraction", 0.0),
        of.get("weight_zero_fraction", 0.0),
        of.get("effective_sample_size", math.nan),
        of.get("kept_effective_sample_size", math.nan),
    )
    return [each.method.replace(":", "\n  "), *map(display.share, shares)]


def _show_faults(where: Console, found: Report) -> None:
    if not found.faults:
        return
    where.print()
    where.print("Findings of the doctor, by file", style="bold")
    for fault in found.faults[:_MOST_LISTED]:
        place = f"row group {fault.group}"
        if fault.sequence is not None:
            place += f", sequence {fault.sequence}"
        if fault.units > 1:
            place += f", and {_count(fault.units - 1, 'other')}"
        where.print(f"{fault.severity:8}{fault.name}: {fault.file}, {place}", soft_wrap=True)
        where.print(f"        {fault.sentence}", width=80)
    _show_rest(where, len(found.faults))


def _show_problems(where: Console, found: Report) -> None:
    if not found.problems:
        return
    where.print()
    where.print("Left out", style="bold")
    for each in found.problems[:_MOST_LISTED]:
        counted = [_count(each.units, "row group")] if each.units else []
        counted += [_count(each.rows, "row")] if each.rows else []
        of = f" ({', '.join(counted)})" if counted else ""
        file = f"{each.file}: " if each.file else ""
        where.print(f"{file}{each.sentence}{of}", soft_wrap=True)
    _show_rest(where, len(found.problems))


def _show_rest(where: Console, total: int) -> None:
    if total > _MOST_LISTED:
        where.print(f"and {total - _MOST_LISTED} more; --json lists all")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def report_json(found: Report) -> str:
    """All numbers; JSON has no NaN: such are null."""

    def finite(value: object) -> object:
        if isinstance(value, dict):
            return {name: finite(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [finite(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(finite(dataclasses.asdict(found)), indent=2)
