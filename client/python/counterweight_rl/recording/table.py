"""Recorded rows as Parquet columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from counterweight_rl._version import __version__
from counterweight_rl.recording.rows import GROUPS, MASK, VERSIONS, Array, Rows

SCHEMA_VERSION = 1
"""The version of the columns; a reader refuses files of a later one."""
VERSION_KEY = b"counterweight.schema_version"
"""The key of the version in a file's metadata."""
TOKENS = "tokens"
"""The column with the tokens of each sequence that count."""
OLDEST, NEWEST = "oldest_version", "newest_version"
"""The columns with the least and the largest policy version of each sequence's positions."""
_LABELS = {
    "run": pa.string(),
    "replica": pa.string(),
    "step": pa.int64(),
    "policy_version": pa.int64(),
    "recorded_at": pa.timestamp("ms", "UTC"),
    "method": pa.string(),
    "method_hash": pa.string(),
    "numerics_version": pa.int64(),
}
_ELEMENTS = {MASK: pa.bool_(), VERSIONS: pa.int32()}


def to_table(rows: Sequence[Rows]) -> Any:
    """Returns rows of one kind as a table, without positions behind a sequence's last token."""
    lengths = np.concatenate([each.lengths for each in rows])
    columns = {name: _joined(rows, name) for name in rows[0].arrays}
    kept, shorter = _without_padding(columns[MASK] != 0, lengths)
    offsets = pa.array(np.concatenate([[0], np.cumsum(shorter)]), pa.int32())
    counts = [len(each.lengths) for each in rows]
    made = {
        name: pa.array(np.repeat([each.labels[name] for each in rows], counts), kind)
        for name, kind in _LABELS.items()
    }
    made["row_id"] = pa.array(
        [f"{r.labels['request_id']}/{i}" for r in rows for i in range(len(r.lengths))]
    )
    for name, values in columns.items():
        if name == GROUPS:
            made[name] = pa.array(values)
            continue
        elements = _ELEMENTS.get(name, pa.float32())
        held = values if kept is None else values[kept]
        flat = pa.array(held.astype(bool) if name == MASK else held, elements)
        # Readers need a third less time for elements that cannot be null.
        lists = pa.list_(pa.field("element", elements, nullable=False))
        made[name] = pa.ListArray.from_arrays(offsets, flat, type=lists)
        if name == MASK:
            made[TOKENS] = pa.array(_by_row(np.add, held != 0, shorter), pa.int64())
        elif name == VERSIONS:
            made[OLDEST] = pa.array(_by_row(np.minimum, held, shorter), pa.int32())
            made[NEWEST] = pa.array(_by_row(np.maximum, held, shorter), pa.int32())
    metadata = {VERSION_KEY: str(SCHEMA_VERSION), b"counterweight.client": __version__}
    return pa.table(made).replace_schema_metadata(metadata)


def options(schema: Any) -> dict[str, Any]:
    """Returns the arguments of pyarrow's writer.

    The bytes of floats do not repeat in whole but by their place, so that a dictionary costs and
    splitting helps.
    """
    lists = {each.name: each.type.value_type for each in schema if pa.types.is_list(each.type)}
    floats = [f"{name}.list.element" for name, kind in lists.items() if kind == pa.float32()]
    repeating = [name for name in _LABELS if name in schema.names]
    repeating += [f"{name}.list.element" for name, kind in lists.items() if kind == pa.int32()]
    return {
        "compression": "zstd",
        "use_dictionary": repeating,
        "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    }


def _by_row(add: np.ufunc, values: Array, lengths: Array) -> Array:
    """Adds up the values of each row, to 0 without any."""
    found = np.zeros(len(lengths), np.int64)
    has = lengths > 0
    if has.any():
        found[has] = add.reduceat(values, (np.cumsum(lengths) - lengths)[has], dtype=np.int64)
    return found


def _joined(rows: Sequence[Rows], name: str) -> Array:
    return np.concatenate([each.arrays[name] for each in rows])


def _without_padding(counts: Array, lengths: Array) -> tuple[Array | None, Array]:
    """The positions up to each sequence's last token, None for all, and how many these are."""
    ends = np.cumsum(lengths)
    begins = ends - lengths
    places = np.flatnonzero(counts)
    # The last token before each end; one before the begin belongs to another sequence.
    last = np.concatenate([[-1], places])[np.searchsorted(places, ends)]
    shorter = np.maximum(last + 1 - begins, 0)
    if shorter.sum() == len(counts):
        return None, lengths
    within = np.arange(len(counts)) - np.repeat(begins, lengths)
    return within < np.repeat(shorter, lengths), shorter
