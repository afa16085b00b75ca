"""Rows of Parquet files."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from counterweight_rl.audit.known_files import joins, refuse_unless_complete
from counterweight_rl.audit.responses import opened
from counterweight_rl.audit.rows import Array, SourceError, UnitRows, make
from counterweight_rl.audit.spec import REQUIRED, ROLES, Spec
from counterweight_rl.recording.rows import MASK, ROLLOUT, VERSIONS
from counterweight_rl.recording.table import (
    NEWEST,
    OLDEST,
    SCHEMA_VERSION,
    TOKENS,
    VERSION_KEY,
)


def groups(path: pathlib.Path) -> list[int]:
    """The bytes of each row group.

    Raises:
        SourceError: It is no whole Parquet file.
    """
    metadata = _open(path).metadata
    of_groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return [
        sum(group.column(i).total_compressed_size for i in range(group.num_columns))
        for group in of_groups
    ]


def count(path: pathlib.Path) -> int:
    """The number of row groups.

    Raises:
        SourceError: It is no whole Parquet file.
    """
    number: int = _open(path).metadata.num_row_groups
    return number


def read(path: pathlib.Path, group: int, spec: Spec, modified: float) -> UnitRows:
    """Reads a row group.

    Raises:
        SourceError: It cannot be audited.
    """
    file = _open(path)
    schema = file.schema_arrow
    version = int((schema.metadata or {}).get(VERSION_KEY, b"0"))
    if version > SCHEMA_VERSION:
        raise SourceError(
            f"has schema version {version}, and this release reads {SCHEMA_VERSION} at most"
        )
    names = {
        role: name for role in ROLES if (name := _first(spec.names(role), schema.names)) is not None
    }
    refuse_unless_complete(names, schema.names, spec)
    if not joins(names, spec):
        names.pop("response_id", None)
    try:
        table = _read(file, group, names)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"cannot be read: {' '.join(str(error).split())[:200]}") from error
    if spec.since is not None:
        table = _recent(table, names.get("recorded_at"), spec.since, modified)
    columns = {role: _whole(table.column(name)) for role, name in names.items()}
    lists = [role for role, column in columns.items() if _is_list(column.type)]
    for role in REQUIRED:
        if role not in lists and role in names:
            raise SourceError(f"{names[role]} must be a column of lists, not {columns[role].type}")
    problems: dict[str, int] = {}
    good = _even(columns, lists, names, problems)
    if good is not None:
        columns = {role: column.filter(good) for role, column in columns.items()}
    of_engine: dict[str, Array] = {}
    if joins(names, spec):
        good, of_engine = _of_responses(columns, spec, problems)
        if "policy_versions" in columns:
            del of_engine["policy_versions"]
        columns = {role: column.filter(good) for role, column in columns.items()}
    lengths = _lengths(columns["response_mask"])

    def numbers(role: str) -> Array | None:
        if role not in columns or role in lists:
            return None
        values = columns[role]
        if not pa.types.is_integer(values.type):
            raise SourceError(f"{names[role]} must be a column of integers, not {values.type}")
        return np.asarray(pc.fill_null(values.cast(pa.int64()), -1))

    def texts(role: str) -> Array | None:
        if role not in columns or role in lists:
            return None
        filled = pc.fill_null(columns[role].cast(pa.string()), "unknown")
        return np.asarray(filled.to_pylist(), dtype=np.str_)

    return make(
        {**of_engine, **{role: _values(columns[role], names[role]) for role in lists}},
        lengths,
        numbers,
        {role: texts(role) for role in ("step", "replica")},
        problems,
    )


def _read(file: Any, group: int, names: dict[str, str]) -> Any:
    """A row group; lists of a recording that its numbers of each sequence imply are not read."""

    def read(columns: Iterable[str]) -> Any:
        return file.read_row_group(group, columns=list(columns), use_threads=False)

    there = {*file.schema_arrow.names}
    is_recording = VERSION_KEY in (file.schema_arrow.metadata or {})
    wanted = [*names.values()]
    if not is_recording or not {ROLLOUT, MASK} <= {*wanted} or TOKENS not in there:
        return read(wanted)
    numbers = read({TOKENS, OLDEST, NEWEST} & there)
    has_versions = VERSIONS in wanted and {OLDEST, NEWEST} <= there
    is_fixed = has_versions and numbers.column(OLDEST).equals(numbers.column(NEWEST))
    later = {MASK, VERSIONS} if is_fixed else {MASK}
    table = read(name for name in wanted if name not in later)
    lengths = _lengths(_whole(table.column(ROLLOUT)))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    if is_fixed:
        table = table.append_column(VERSIONS, numbers.column(OLDEST))
    if not np.array_equal(lengths, numbers.column(TOKENS).to_numpy()):
        return table.append_column(MASK, read([MASK]).column(MASK))
    count = int(lengths.sum())
    ones = pa.py_buffer(np.full((count + 7) // 8, 255, np.uint8))
    of_tokens = pa.Array.from_buffers(pa.bool_(), count, [None, ones])
    return table.append_column(MASK, pa.ListArray.from_arrays(offsets, of_tokens))


def _of_responses(
    columns: dict[str, Any], spec: Spec, problems: dict[str, int]
) -> tuple[Any, dict[str, Array]]:
    """The rows with a response, and the engine's columns of these."""
    responses = opened(spec.responses or "")
    mask = _values(columns["response_mask"], "response_mask")
    ends = np.cumsum(_lengths(columns["response_mask"]))
    log_probs: list[Array] = [np.empty(0, np.float32)]
    versions: list[Array] = [np.empty(0, np.int64)]
    good = []
    begin = 0
    names = columns["response_id"].cast(pa.string()).to_pylist()
    for name, end in zip(names, ends.tolist(), strict=True):
        at = responses.at(name, mask[begin:end])
        begin = end
        good.append(not isinstance(at, str))
        if isinstance(at, str):
            problems[at] = problems.get(at, 0) + 1
        else:
            log_probs.append(at[0])
            versions.append(at[1])
    joined: dict[str, Array] = {
        "rollout_log_probs": np.concatenate(log_probs),
        "policy_versions": np.concatenate(versions),
    }
    return pa.array(good, pa.bool_()), joined


def _open(path: pathlib.Path) -> Any:
    try:
        status = path.stat()
        return pq.ParquetFile(
            path, metadata=_footer(path, status.st_ino, status.st_size, status.st_mtime_ns)
        )
    except (pa.ArrowException, OSError) as error:
        why = " ".join(str(error).split())
        if "magic bytes" in why or "smaller than" in why:
            why = "it is truncated, or no Parquet file"
        raise SourceError(f"cannot be read: {why[:200]}") from error


@functools.lru_cache(maxsize=4)
def _footer(path: pathlib.Path, *identity: int) -> Any:
    """The end of a file, which names all row groups: read once, not for each of them."""
    del identity  # of another file with that name
    return pq.read_metadata(path)


def _first(names: Sequence[str], there: Sequence[str]) -> str | None:
    return next((name for name in names if name in there), None)


def _recent(table: Any, column: str | None, since: float, modified: float) -> Any:
    if column is None:
        return table if modified >= since else table.slice(0, 0)
    times = table.column(column).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return table.filter(pc.greater_equal(times, int(since * 1000)))


def _whole(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    return whole


def _is_list(kind: Any) -> bool:
    of = pa.types
    return bool(of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind))


def _lengths(column: Any) -> Array:
    lengths: Array = np.asarray(pc.fill_null(pc.list_value_length(column), -1), np.int64)
    return lengths


def _even(
    columns: dict[str, Any], lists: list[str], names: dict[str, str], problems: dict[str, int]
) -> Any:
    """The rows with lists of one length; None: all."""
    lengths = {role: _lengths(columns[role]) for role in lists}
    first = lengths["response_mask"]
    good = first >= 0
    if not good.all():
        problems[f"rows whose {names['response_mask']} is null"] = int((~good).sum())
    for role in lists:
        wrong = good & (lengths[role] != first)
        if wrong.any():
            sentence = f"rows whose {names[role]} and {names['response_mask']} differ in length"
            problems[sentence] = int(wrong.sum())
            good &= ~wrong
    return None if good.all() else pa.array(good)


def _values(column: Any, name: str) -> Array:
    values = column.flatten()
    kind = values.type
    of = pa.types
    if not (of.is_floating(kind) or of.is_integer(kind) or of.is_boolean(kind)):
        raise SourceError(f"{name} must have lists of numbers, not of {kind}")
    if values.null_count:
        raise SourceError(f"{name} must have no nulls")
    if of.is_boolean(kind) and len(values):
        # pyarrow makes a bool of each bit by itself.
        end = values.offset + len(values)
        bits = np.frombuffer(values.buffers()[1], np.uint8)
        return np.unpackbits(bits, count=end, bitorder="little")[values.offset :].view(np.bool_)
    found: Array = values.to_numpy(zero_copy_only=False)
    return found
