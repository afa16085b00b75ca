"""Time per token of an audit with three methods and all keys on one core, beside reading its log-probs alone.

The log is a recording of 16 steps on 4 replicas, rows of 200 to 2,047 tokens sampled by the last three policies.
Prints least processor times of several rounds, reading and audit in turn.

    .venv/bin/python tests/benchmark/audit_log.py
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

import counterweight_rl as cw
import numpy as np
import pyarrow.parquet as pq
from counterweight_rl import audit

METHODS = ("token_tis", "icepop", "geo_rs_token_tis")
LOG_PROBS = ("rollout_log_probs", "old_log_probs")


def record(folder: pathlib.Path, steps: int) -> None:
    """Writes a log of generated batches."""
    rng = np.random.default_rng(0)
    with cw.Client("local:", record=folder) as client:
        for step in range(steps):
            lengths = rng.integers(200, 2048, 128)
            tokens = int(lengths.sum())
            rollout = -rng.exponential(size=tokens).astype(np.float32)
            old = np.minimum(rollout + rng.normal(0, 0.05, tokens), 0).astype(np.float32)
            client.correct(
                method="token_tis",
                step=step,
                replica=f"r{step % 4}",
                policy_version=100 + step,
                policy_versions=np.repeat(100 + step - rng.integers(0, 3, 128), lengths),
                rollout_log_probs=rollout,
                old_log_probs=old,
                response_mask=np.ones(tokens, bool),
                sequence_lengths=lengths,
            )


def read(files: list[pathlib.Path]) -> int:
    """Reads the two columns as pyarrow does; returns their tokens."""
    tokens = 0
    for file in files:
        opened = pq.ParquetFile(file)
        for group in range(opened.num_row_groups):
            table = opened.read_row_group(group, columns=[*LOG_PROBS], use_threads=False)
            tokens += len(table.column(LOG_PROBS[0]).combine_chunks().flatten())
    return tokens


def main() -> None:
    """Prints the two times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    spec = audit.Spec({name: cw.Preset(name) for name in METHODS}, doctor=False)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "log"
        record(place, chosen.steps)
        files = sorted(place.rglob("*.parquet"))
        units = audit.units(place)
        times: dict[str, float] = {}
        tokens = 0
        for _ in range(chosen.rounds):
            for name in ("read", "audit"):
                begin = time.process_time()
                if name == "read":
                    tokens = read(files)
                else:
                    for each in units:
                        audit.unit(each.path, each.group, spec)
                spent = time.process_time() - begin
                times[name] = min(spent, times.get(name, spent))
    of_token = {name: 1e9 * spent / tokens for name, spent in times.items()}
    print(
        f"{tokens:,} tokens, {len(units)} row groups: audit {of_token['audit']:.1f} ns a token, "
        f"{times['audit'] / times['read']:.1f} times reading two columns ({of_token['read']:.1f} ns)"
    )


if __name__ == "__main__":
    main()
