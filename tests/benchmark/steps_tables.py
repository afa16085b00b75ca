"""The table and targets of steps.py."""

from __future__ import annotations

from typing import Any

from table_parts import table, verdict

Json = dict[str, Any]

STEP_RATIO = 1.25
SUMS_RATIO = 1.02
# One all-reduce.
MOST_BYTES = 8 << 10
# Tokens of the micro-batches of the targets; smaller ones pay a second call.
AIMED_TOKENS = 32 << 10


def steps_table(results: Json) -> str:
    """Microseconds for each micro-batch."""
    lines = [
        [
            row["method"],
            f"{row['size'][0]} x {row['size'][1]:,}",
            *(f"{row['us'][way]:,.0f}" for way in ("plain", "with sums", "step")),
            f"{row['us']['with sums'] / row['us']['plain']:.2f}",
            f"{row['us']['step'] / row['us']['plain']:.2f}",
            f"{row['bytes']:,}",
        ]
        for row in results["steps"]
    ]
    header = ["64 micro-batches, us each", "size", "plain calls", "with sums", "Step"]
    return table([*header, "sums / plain", "Step / plain", "bytes of sums"], lines)


def targets(results: Json) -> list[list[str]]:
    """Three lines: the worst of the sizes that are aimed at."""
    rows = [r for r in results["steps"] if r["size"][0] * r["size"][1] >= AIMED_TOKENS]
    step = max(r["us"]["step"] / r["us"]["plain"] for r in rows)
    sums = max(r["us"]["with sums"] / r["us"]["plain"] for r in rows)
    most = max(r["bytes"] for r in results["steps"])
    return [
        [
            "a step of 64 micro-batches of 32 Ki tokens by `Step`, against plain calls",
            f"<= {STEP_RATIO} x",
            f"{step:.2f} x",
            verdict(step <= STEP_RATIO),
        ],
        [
            "an answer with its sums, against one without, T >= 1,024",
            f"<= {SUMS_RATIO} x",
            f"{sums:.2f} x",
            verdict(sums <= SUMS_RATIO),
        ],
        [
            "bytes of a step's all-reduce",
            f"<= {MOST_BYTES:,}",
            f"{most:,}",
            verdict(most <= MOST_BYTES),
        ],
    ]
