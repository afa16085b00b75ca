"""Generated logs of batches, the same in every run, in any layout of files and row groups."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]


def make_rows(count: int = 60, seed: int = 0, longest: int = 700) -> Rows:
    """Sequences of two replicas at three steps; staler tokens drift more; a few log-probs are NaN."""
    generator = np.random.default_rng(seed)
    rows: Rows = []
    for i in range(count):
        length = 0 if i == 7 else int(generator.integers(1, longest))
        step = 100 + i % 3
        lag = int(generator.integers(0, 6))
        versions = np.full(length, step - lag)
        if i % 5 == 0:  # the engine loaded new weights meanwhile
            versions[length // 2 :] += 1 if lag else 0
        if i % 11 == 0:
            versions[:] = -1
        rollout = -generator.exponential(size=length)
        spread = 0.02 + 0.03 * lag
        old = np.minimum(rollout + spread * generator.standard_normal(length), 0)
        mask = (generator.random(length) < 0.9).astype(bool)
        mask[:1] = True
        if i == 13:
            old[3] = np.nan
        rows.append(
            {
                "rollout_log_probs": rollout.astype(np.float32),
                "old_log_probs": old.astype(np.float32),
                "response_mask": mask,
                "policy_versions": versions.astype(np.int32),
                "policy_version": step,
                "step": step,
                "replica": f"r{i % 2}",
            }
        )
    return rows


def table(rows: Sequence[dict[str, Any]], drop: Sequence[str] = ()) -> pa.Table:
    kinds = {"rollout_log_probs": pa.float32(), "old_log_probs": pa.float32()}
    kinds |= {"response_mask": pa.bool_(), "policy_versions": pa.int32()}
    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        is_list = name in kinds
        columns[name] = pa.array(values, pa.list_(kinds[name])) if is_list else pa.array(values)
    return pa.table(columns).drop_columns(list(drop))


def write(folder: pathlib.Path, files: Sequence[Rows], group: int = 1_000_000) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, rows in enumerate(files):
        pq.write_table(table(rows), folder / f"{i:03}.parquet", row_group_size=group)
    return folder


def batch(rows: Rows, mask: Sequence[Any] | None = None) -> dict[str, Any]:
    """The rows as the arguments of one call, with versions counted back from 2**30."""
    newest = 1 << 30
    joined = {
        name: np.concatenate([row[name] for row in rows])
        for name in ("rollout_log_probs", "old_log_probs", "response_mask")
    }
    stale = [
        np.where(row["policy_versions"] < 0, -1, newest - row["step"] + row["policy_versions"])
        for row in rows
    ]
    if mask is not None:
        joined["response_mask"] = np.concatenate([np.asarray(m, bool) for m in mask])
    return {
        **joined,
        "sequence_lengths": [len(row["response_mask"]) for row in rows],
        "policy_versions": np.concatenate(stale).astype(np.int32),
        "policy_version": newest,
        "non_finite": "drop",
    }
