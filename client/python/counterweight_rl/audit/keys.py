"""Splits the rows of a unit by their properties."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterweight_rl.audit.rows import Array, UnitRows

# Positions of a token in its response, by the first of each range. All are multiples of 32, so
# that the tokens of a range have the sums that they have in the whole row (kernels/README.md).
POSITIONS = (0, 32, 64, 128, *(1 << power for power in range(8, 31)))
# A piece of a row that begins at a multiple has the row's sums, wherever its tokens lie.
_SEGMENT = 4096
# A call with fewer tokens takes longer for what it does once than for its tokens.
_CALL_TOKENS = 10_000

CAUSES = ("engine alone", "engine and staleness", "unknown")
"""The causes of the drift of fresh sequences, of stale ones, and of those without versions."""

Key = tuple[str, str]
"""A property and its value: ("step", "12")."""


@dataclass(frozen=True)
class Tokens:
    """Pieces of sequences, one after the other.

    Attributes:
        rollout: As in ``UnitRows``.
        old: As in ``UnitRows``.
        mask: The same.
        lengths: Positions of each piece, int64.
    """

    rollout: Array
    old: Array
    mask: Array
    lengths: Array


def split(rows: UnitRows, by: Sequence[str]) -> Iterator[tuple[list[Key], Tokens]]:
    """The tokens with each value of each property; a value may occur several times.

    Tokens with equal values of several properties occur once, with all of these.

    Args:
        rows: Has tokens.
        by: Some of ``spec.KEYS`` but "staleness", which is no property of rows or positions.
    """
    columns = [_column(rows, key) for key in by if key != "position"]
    for group in _groups(columns, int(rows.lengths.sum())):
        yield from _by_row(rows, group)
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
    if calls <= (len(varied) - 1) * tokens // _CALL_TOKENS:
        return [columns]
    constant = [each for each in columns if len(each.values) == 1]
    return [[*constant, varied[0]], *([each] for each in varied[1:])]


def _by_row(rows: UnitRows, columns: Sequence[_Column]) -> Iterator[tuple[list[Key], Tokens]]:
    first, of_row = _cells(columns)
    order = np.argsort(of_row, kind="stable")
    pieces = _gather(rows, rows.begins[order], rows.lengths[order])
    for row, tokens in zip(first, _cut(pieces, np.bincount(of_row)), strict=True):
        keys = [
            (each.key, each.values[each.of_row[row]]) for each in columns if each.of_row[row] >= 0
        ]
        if keys:
            yield keys, tokens


def _mixed(rows: UnitRows) -> Iterator[tuple[list[Key], Tokens]]:
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
    pieces = _gather(rows, begin, lengths)
    is_of_piece = _take(rows.versions, begin, lengths) == np.repeat(version, lengths)
    pieces = Tokens(pieces.rollout, pieces.old, pieces.mask & is_of_piece, lengths)
    versions, counts = np.unique(version, return_counts=True)
    for value, tokens in zip(versions.tolist(), _cut(pieces, counts), strict=True):
        yield [("version", "unknown" if value < 0 else str(value))], tokens


def _by_position(rows: UnitRows) -> Iterator[tuple[list[Key], Tokens]]:
    """By the position behind the first token that counts."""
    ends = rows.begins + rows.lengths
    begins, lengths, counts = [], [], []
    for first, behind in itertools.pairwise(POSITIONS):
        begin = rows.firsts + first
        has = begin < ends
        if not has.any():
            break
        begins.append(begin[has])
        lengths.append(np.minimum(ends, rows.firsts + behind)[has] - begins[-1])
        counts.append(len(begins[-1]))
    if not begins:
        return
    pieces = _gather(rows, np.concatenate(begins), np.concatenate(lengths))
    for first, tokens in zip(POSITIONS, _cut(pieces, counts), strict=False):
        yield [("position", str(first))], tokens


def _gather(rows: UnitRows, begins: Array, lengths: Array) -> Tokens:
    return Tokens(
        _take(rows.rollout, begins, lengths),
        _take(rows.old, begins, lengths),
        _take(rows.mask, begins, lengths),
        lengths,
    )


def _take(array: Array, begins: Array, lengths: Array) -> Array:
    """The elements of pieces; a view where they are one run of the array."""
    ends = begins + lengths
    is_next = begins[1:] == ends[:-1]
    starts = begins[np.concatenate([[True], ~is_next])].tolist()
    stops = ends[np.concatenate([~is_next, [True]])].tolist()
    if len(starts) == 1:
        return array[starts[0] : stops[0]]
    # Copies whole runs: indices of single tokens take ten times as long.
    return np.concatenate([array[a:b] for a, b in zip(starts, stops, strict=True)])


def _cut(pieces: Tokens, counts: Array | Sequence[int]) -> Iterator[Tokens]:
    """Views of so many pieces each."""
    lasts = np.cumsum(counts)
    ends = np.concatenate([[0], np.cumsum(pieces.lengths)])
    for last, count in zip(lasts.tolist(), [*counts], strict=True):
        here = slice(ends[last - count], ends[last])
        lengths = pieces.lengths[last - count : last]
        yield Tokens(pieces.rollout[here], pieces.old[here], pieces.mask[here], lengths)


def order(key: str, values: Mapping[str, object]) -> list[str]:
    """The values of a key as people read them: numbers ascending, then texts."""
    del key
    return sorted(values, key=lambda v: (0, int(v), "") if v.isdigit() else (1, 0, v))
