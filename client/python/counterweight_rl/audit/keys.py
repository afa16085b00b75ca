"""Splits the rows of a unit by their properties."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterweight_rl.audit.part import ALL
from counterweight_rl.audit.pieces import Split, pieces_of, take, whole
from counterweight_rl.audit.rows import Array, UnitRows

# Positions of a token in its response, by the first of each range. All are multiples of 32, so
# that the tokens of a range have the sums that they have in the whole row (kernels/README.md).
POSITIONS = (0, 32, 64, 128, *(1 << power for power in range(8, 31)))
# A piece of a row that begins at a multiple has the row's sums, wherever its tokens lie.
_SEGMENT = 4096
# A part of fewer tokens takes longer for what is done once than for its tokens.
_PART_TOKENS = 3_000

CAUSES = ("engine alone", "engine and staleness", "unknown")
"""The causes of the drift of fresh sequences, of stale ones, and of those without versions."""


def split(rows: UnitRows, by: Sequence[str]) -> Iterator[Split]:
    """The sequences, or pieces of them, by the values of each property.

    The parts of the first split have all sequences, and the key ALL, too. Sequences with equal
    values of several properties are one part.

    Args:
        rows: Has tokens.
        by: Some of ``spec.KEYS``; "staleness", which is no property of sequences or positions, is
            in the sums of sequences.
    """
    columns = [_column(rows, key) for key in by if key not in ("position", "staleness")]
    also = [_Column(ALL[0], [ALL[1]], np.zeros(len(rows.lengths), np.int64))]
    for group in _groups(columns, int(rows.lengths.sum())) or [[]]:
        yield _by_row(rows, [*also, *group])
        also = []
    if "version" in by:
        yield from _mixed(rows)
    if "position" in by:
        yield from _by_position(rows)


@dataclass(frozen=True)
class _Column:
    """A property of rows.

    Attributes:
        key: Its name.
        values: The values that occur.
        of_row: Index of each row's value; -1: the row has none, but its tokens have.
    """

    key: str
    values: Sequence[str]
    of_row: Array


def _column(rows: UnitRows, key: str) -> _Column:
    if key == "length":
        # 0, 1, 2, 3-4, 5-8, ...: the label is the largest, so that it is exact and sorts.
        powers = np.ceil(np.log2(np.maximum(rows.tokens, 1))).astype(np.int64)
        return _of(key, np.where(rows.tokens == 0, 0, 1 << powers), str)
    if key == "version":
        found = rows.of_versions
        column = _of(key, found.high, lambda value: "unknown" if value < 0 else str(value))
        return _Column(key, column.values, np.where(found.is_mixed, -1, column.of_row))
    if key == "cause":
        return _of(key, np.array(CAUSES)[_causes(rows)], str)
    return _of(key, rows.labels[key], str)


def _causes(rows: UnitRows) -> Array:
    """Indices of CAUSES: a sequence is fresh if all its tokens are of the trainer's version."""
    found = rows.of_versions
    is_unknown = (rows.tokens == 0) | (found.low < 0) | (found.high > rows.trained)
    causes: Array = np.where(is_unknown, 2, found.low < rows.trained)
    return causes


def _of(key: str, of_row: Array, name: Callable[[Any], str]) -> _Column:
    found, inverse = np.unique(of_row, return_inverse=True)
    return _Column(key, [name(value) for value in found.tolist()], inverse)


def _cells(columns: Sequence[_Column]) -> tuple[Array, Array]:
    """A row of each combination of values, and which combination each row has."""
    whole = np.zeros(len(columns[0].of_row), np.int64)
    first = np.zeros(1, np.int64)
    for each in columns:
        joined = whole * (len(each.values) + 1) + each.of_row
        _, first, whole = np.unique(joined, return_index=True, return_inverse=True)
    return first, whole


def _groups(columns: list[_Column], tokens: int) -> list[list[_Column]]:
    """Which properties are split together: each group is a pass over all tokens.

    All at once, unless their values combine to so many calls that a pass for each takes less.
    """
    varied = [each for each in columns if len(each.values) > 1]
    if len(varied) < 2:
        return [columns] if columns else []
    calls = len(_cells(columns)[0]) - sum(len(each.values) for each in varied)
    if calls <= (len(varied) - 1) * tokens // _PART_TOKENS:
        return [columns]
    constant = [each for each in columns if len(each.values) == 1]
    return [[*constant, varied[0]], *([each] for each in varied[1:])]


def _by_row(rows: UnitRows, columns: Sequence[_Column]) -> Split:
    first, of_row = _cells(columns)
    members = [
        ((each.key, value), np.flatnonzero(each.of_row[first] == index))
        for each in columns
        for index, value in enumerate(each.values)
    ]
    return Split(whole(rows), of_row.astype(np.int32), len(first), members)


def _mixed(rows: UnitRows) -> Iterator[Split]:
    """By the version of each token, of rows that have several."""
    found = rows.of_versions
    here = np.flatnonzero(found.is_mixed[found.run_row])
    if not len(here):
        return
    row, version = found.run_row[here], found.run_version[here]
    begin, end = found.run_begin[here], found.run_end[here]
    order = np.lexsort((row, version))
    row, version, begin, end = row[order], version[order], begin[order], end[order]
    # A piece of a row for each version, from its first run to its last.
    is_new = np.concatenate([[True], (row[1:] != row[:-1]) | (version[1:] != version[:-1])])
    is_last = np.concatenate([is_new[1:], [True]])
    row, version, begin, end = row[is_new], version[is_new], begin[is_new], end[is_last]
    begin -= (begin - rows.begins[row]) % _SEGMENT
    lengths = end - begin
    is_of_piece = take(rows.versions, begin, lengths) == np.repeat(version, lengths)
    pieces = pieces_of(whole(rows), begin, lengths)
    values, part_of = np.unique(version, return_inverse=True)
    members = [
        (("version", "unknown" if value < 0 else str(value)), np.array([index]))
        for index, value in enumerate(values.tolist())
    ]
    yield Split(
        replace(pieces, mask=pieces.mask & is_of_piece),
        part_of.astype(np.int32),
        len(values),
        members,
    )


def _by_position(rows: UnitRows) -> Iterator[Split]:
    """By the position behind the first token that counts."""
    ends = rows.begins + rows.lengths
    begins, lengths = [rows.begins], [rows.firsts - rows.begins]
    for first, behind in itertools.pairwise(POSITIONS):
        begin = np.minimum(rows.firsts + first, ends)
        length = np.minimum(rows.firsts + behind, ends) - begin
        if not length.any():
            break
        begins.append(begin)
        lengths.append(length)
    if len(begins) == 1:
        return
    # Pieces as they lie, so that no token is copied.
    sizes = np.stack(lengths, axis=1).ravel()
    part_of = np.tile(np.arange(-1, len(begins) - 1, dtype=np.int32), len(rows.lengths))
    is_piece = sizes > 0
    members = [
        (("position", str(first)), np.array([index]))
        for index, first in enumerate(POSITIONS[: len(begins) - 1])
    ]
    tokens = replace(whole(rows), versions=None, lengths=sizes[is_piece])
    yield Split(tokens, part_of[is_piece], len(members), members)


def order(key: str, values: Mapping[str, object]) -> list[str]:
    """The values of a key as people read them: numbers ascending, then texts."""
    del key
    return sorted(values, key=lambda v: (0, int(v), "") if v.isdigit() else (1, 0, v))
