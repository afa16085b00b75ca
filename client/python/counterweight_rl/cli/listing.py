"""The table of methods."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console

from counterweight_rl.cli import display
from counterweight_rl.cli.problems import InputError
from counterweight_rl.info import MethodInfo
from counterweight_rl.suggestions import did_you_mean


def show(where: Console, methods: Sequence[MethodInfo], name: str | None, *, as_json: bool) -> None:
    """Prints all methods, or one with everything about it.

    Raises:
        InputError: No method has that name.
    """
    chosen = [each for each in methods if name in (None, each.name)]
    if not chosen:
        hint = did_you_mean(name, [each.name for each in methods])
        raise InputError(
            f"there is no method {name!r}{hint or '; counterweight methods lists all'}"
        )
    if as_json:
        rows = [dataclasses.asdict(each) for each in chosen]
        print(json.dumps(rows if name is None else rows[0], indent=2))
    elif name is None:
        rows_of_text = [(each.name, each.origin, each.summary) for each in chosen]
        where.print(display.table("", ("method", "from", "what it does"), rows_of_text, left=3))
    else:
        _show_one(where, chosen[0])


def _show_one(where: Console, method: MethodInfo) -> None:
    origin = f"{method.origin} {method.origin_name}".strip()
    where.print(f"{method.name} (from {origin})", style="bold")
    where.print(method.summary)
    where.print()
    for part in method.formula.split("; "):
        where.print(f"  {part}")
    where.print()
    where.print(f"When: {method.when_to_use}")
    if method.reference:
        where.print(f"Paper: {method.reference}", soft_wrap=True)
    if method.parameters:
        rows = [
            (each.name, each.unit, each.description, display.number(each.default_value))
            for each in method.parameters
        ]
        where.print(display.table("", ("parameter", "unit", "meaning", "default"), rows, left=3))
    for system, block in method.equivalents.items():
        where.print(f"The same in {system}'s words: {block}", soft_wrap=True)
