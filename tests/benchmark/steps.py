"""The cost of the sums of a step: Step over 64 micro-batches against 64 plain calls, in process.

    .venv/bin/python tests/benchmark/steps.py

One core. All ways of a size are measured in turn, so that they meet the same machine. Prints JSON;
bench.py makes the table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import numpy as np
from counterweight_rl.distributed import Step

MICRO_BATCHES = 64
# Rows and positions of a micro-batch.
SIZES = ((8, 1024), (32, 1024), (8, 4096))
METHODS = ("token_tis_ppo_clip", "geo_rs_token_tis_ppo_clip")
REPETITIONS = 9

Json = dict[str, Any]


def micro_batch(rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shape = (rows, length)
    rollout = -random.exponential(size=shape).astype(np.float32)
    old = -np.abs(rollout + 0.1 * random.normal(size=shape)).astype(np.float32)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "current_log_probs": -np.abs(old + 0.1 * random.normal(size=shape)).astype(np.float32),
        "advantages": random.normal(size=shape).astype(np.float32),
        "response_mask": np.ones(shape, bool),
    }


def one_step(client: cw.Client, method: str, micros: list[dict[str, np.ndarray]]) -> cw.StepTotals:
    step = Step(client, method)
    for micro in micros:
        step.add(**micro, outputs=["sequence_reasons"])
    totals = step.reduce()
    for micro in micros:
        step.finish(**micro)
    step.close()
    return totals


def least_us(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least time of each, microseconds for each micro-batch."""
    times = dict.fromkeys(ways, float("inf"))
    for repetition in range(REPETITIONS + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            if repetition:  # the first prepares
                times[name] = min(times[name], time.perf_counter() - begin)
    return {name: 1e6 * seconds / MICRO_BATCHES for name, seconds in times.items()}


def measure() -> list[Json]:
    rows = []
    with cw.Client("local:?threads=1") as client:
        for method in METHODS:
            for size in SIZES:
                micros = [micro_batch(*size, seed) for seed in range(MICRO_BATCHES)]

                def calls(sums: bool, micros: Any = micros, method: str = method) -> None:
                    for micro in micros:
                        client.correct(**micro, method=method, partial_sums=sums)

                us = least_us(
                    {
                        "plain": lambda: calls(False),
                        "with sums": lambda: calls(True),
                        "step": lambda: one_step(client, method, micros),  # noqa: B023
                    }
                )
                sums = one_step(client, method, micros).sums
                rows.append({"method": method, "size": size, "us": us, "bytes": sums.nbytes})
                print(f"steps: {rows[-1]}", file=sys.stderr)
    return rows


if __name__ == "__main__":
    print(json.dumps(measure()))
