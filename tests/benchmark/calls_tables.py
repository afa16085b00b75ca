"""The tables and targets of calls.py."""

from __future__ import annotations

from typing import Any

from table_parts import table, verdict

Json = dict[str, Any]

COLUMNS = (
    "eager",
    "compiled",
    "local:",
    "local:, metrics",
    "socket",
    "socket, metrics",
    "shared memory",
    "shared memory, metrics",
)
WORKS = {
    "weights": "weights (`token_tis`)",
    "loss": "loss, gradient and backward (`token_tis_ppo_clip`)",
}
# Sizes of the targets.
AIMED = ([8, 1024], [64, 512], [256, 1024])
WEIGHTS_US = 40.0  # beside compiled torch
METRICS_RATIO = 1.5


def rows_of(results: Json, work: str, dtype: str) -> list[Json]:
    return [r for r in results["calls"] or () if (r["work"], r["dtype"]) == (work, dtype)]


def tables(results: Json) -> list[str]:
    """One table for each work and dtype: microseconds, medians."""
    if not results["calls"]:
        return ["Skipped: no `.venv-torch`; `.ci/setup torch` makes it (5 GB)."]
    parts = []
    for work, title in WORKS.items():
        for dtype in ("float32", "bfloat16"):
            lines = [
                [
                    f"{row['size'][0]:,} x {row['size'][1]:,}",
                    *(f"{row['us'][c]:,.0f}" if c in row["us"] else "-" for c in COLUMNS),
                ]
                for row in rows_of(results, work, dtype)
            ]
            parts += [f"{title}, {dtype}, us:", table(["size", *COLUMNS], lines)]
    return parts


def targets(results: Json) -> list[list[str]]:
    """Three lines: the worst size of each."""
    if not results["calls"]:
        return [["a call of local: from torch, against compiled torch", "", "skipped", "-"]]
    weights = [r["us"] for r in rows_of(results, "weights", "float32") if r["size"] in AIMED]
    losses = [r["us"] for r in rows_of(results, "loss", "float32") if r["size"] in AIMED]
    beside = max(us["local:"] - us["compiled"] for us in weights)
    ratio = max(us["local:"] / us["compiled"] for us in losses)
    metrics = max(us["local:, metrics"] / us["compiled"] for us in losses)
    return [
        [
            "`local:`, weights, us beside compiled torch, worst size",
            f"<= {WEIGHTS_US:.0f}",
            f"{beside:.0f}",
            verdict(beside <= WEIGHTS_US),
        ],
        [
            "`local:`, loss and gradient, against compiled torch, worst size",
            "<= 1 x",
            f"{ratio:.2f} x",
            verdict(ratio <= 1.0),
        ],
        [
            "`local:`, the same with all metrics, worst size",
            f"<= {METRICS_RATIO} x",
            f"{metrics:.2f} x",
            verdict(metrics <= METRICS_RATIO),
        ],
    ]
