"""Parquet files with one row for each sequence, and columns of lists."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from counterweight_rl.cli.problems import InputError


def read(
    path: pathlib.Path, lists: Collection[str], one_per_row: Collection[str]
) -> dict[str, Any]:
    """Reads the columns that exist: of lists, one after the other, and ``sequence_lengths``.

    Columns of one number for each row become [B, 1], or [B] if they must be so.

    Raises:
        InputError: The file or a column is wrong.
    """
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        there = [name for name in dict.fromkeys((*lists, *one_per_row)) if name in names]
        table = file.read(columns=there)
    except pa.ArrowException as error:
        raise InputError(f"{path}: is no Parquet file that can be read: {error}") from error
    found: dict[str, Any] = {}
    first = ""
    for name in there:
        column = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([])
        wrong = f"{path}: {name}:"
        if name in one_per_row and _is_number(column.type):
            numbers = _numbers(wrong, column)
            found[name] = numbers.reshape(-1, 1) if name in lists else numbers
            continue
        if name not in lists:
            raise InputError(f"{wrong} must be a column of numbers, not of {column.type}")
        values, lengths = _lists(wrong, column)
        first = first or name
        before = found.setdefault("sequence_lengths", lengths)
        if not np.array_equal(before, lengths):
            row = int(np.flatnonzero(before != lengths)[0])
            raise InputError(
                f"{path}: {name}: has {lengths[row]} elements in row {row}, but {first} has "
                f"{before[row]}"
            )
        found[name] = values
    return found


def names(path: pathlib.Path) -> list[str]:
    """The columns of a file that can be read."""
    return list(pq.ParquetFile(path).schema_arrow.names)


def _lists(wrong: str, column: Any) -> tuple[Any, Any]:
    """The elements of a column's lists, and the length of each list."""
    kind = column.type
    is_list = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    if not is_list:
        raise InputError(f"{wrong} must be a column of lists of numbers, not of {kind}")
    element = kind.value_type
    if not _is_number(element):
        raise InputError(f"{wrong} must have lists of numbers, not of {element}")
    values = column.flatten()
    if column.null_count or values.null_count:
        raise InputError(f"{wrong} must have no nulls")
    lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False), np.int64)
    return values.to_numpy(zero_copy_only=False), lengths


def _is_number(kind: Any) -> bool:
    of = pa.types
    return bool(of.is_floating(kind) or of.is_integer(kind) or of.is_boolean(kind))


def _numbers(wrong: str, column: Any) -> Any:
    if column.null_count:
        raise InputError(f"{wrong} must have no nulls")
    return column.to_numpy(zero_copy_only=False)


def write(path: pathlib.Path, arrays: Mapping[str, Any], lengths: Any) -> None:
    """Writes the arrays of a result; a column that it lacks has nulls only.

    Raises:
        OSError: The file cannot be written.
    """
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    elements = {
        "weights": pa.float32(),
        "keep_mask": pa.bool_(),
        "token_reasons": pa.uint16(),
        "gradient": pa.float32(),
    }
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        if name == "sequence_reasons":
            kind = pa.uint16()
            made = None if array is None else pa.array(array, kind)
        else:
            kind = pa.list_(elements[name])
            flat = None if array is None else pa.array(array.reshape(-1)).cast(elements[name])
            made = None if flat is None else pa.ListArray.from_arrays(offsets, flat)
        columns[name] = pa.nulls(len(lengths), kind) if made is None else made
    pq.write_table(pa.table(columns), path)
