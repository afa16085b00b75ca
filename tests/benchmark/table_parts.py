"""Selections of bench.py's results and their Markdown, which the modules of tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEADLINE = "token_tis+3_rules"
# Shorter sequences have no target.
LONG = 1024

Json = dict[str, Any]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned, so that it reads well as plain text too."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(header))]

    def line_of(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line_of(header), "| " + " | ".join(rule) + " |", *map(line_of, lines[1:])])


def instruction_sets(results: Json) -> list[str]:
    return list(dict.fromkeys(row["isa"] for row in results["kernels"]))


def kernel(results: Json, **wanted: object) -> list[Json]:
    return [row for row in results["kernels"] if all(row[k] == v for k, v in wanted.items())]


def torch_rows(results: Json, **wanted: object) -> list[Json]:
    rows = results["torch"]["rows"] if results["torch"] else []
    return [row for row in rows if all(row[k] == v for k, v in wanted.items())]


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"
