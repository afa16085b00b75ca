"""Splits the rows of a unit by their properties."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from counterweight_rl.audit.rows import Array, UnitRows

# Positions of a token in its response, by the first of each range. All are multiples of 32, so that
# the tokens of a range have the sums that they have in the whole row (kernels/README.md).
POSITIONS = (0, 32, 64, 128, *(1 << power for power in range(8, 31)))


@dataclass(frozen=True)
class Selection:
    """Tokens of a unit.

    Attributes:
        begins: Where each piece of a sequence begins in the unit's arrays; None: all tokens.
        lengths: The tokens of each piece, or of each sequence.
        mask: The tokens that count, instead of the unit's; None: the unit's.
    """

    begins: Array | None
    lengths: Array
    mask: Array | None = None

    def take(self, array: Array) -> Array:
        """The tokens' elements of one of the unit's arrays; a view where they are one run of it."""
        if self.begins is None:
            return array
        ends = self.begins + self.lengths
        is_next = self.begins[1:] == ends[:-1]
        starts = self.begins[np.concatenate([[True], ~is_next])].tolist()
        stops = ends[np.concatenate([~is_next, [True]])].tolist()
        if len(starts) == 1:
            return array[starts[0] : stops[0]]
        # Copies whole runs: indices of single tokens take ten times as long.
        return np.concatenate([array[a:b] for a, b in zip(starts, stops, strict=True)])


def split(rows: UnitRows, key: str) -> Iterator[tuple[str, Selection]]:
    """The tokens of each value of a key; a value may occur twice."""
    if key == "position":
        yield from _by_position(rows)
    elif key == "version":
        yield from _by_version(rows)
    elif key == "length":
        before = np.concatenate([[0], np.cumsum(rows.mask, dtype=np.int64)])
        tokens = before[rows.begins + rows.lengths] - before[rows.begins]
        # 1, 2, 3-4, 5-8, ...: the label is the largest, so that it is exact and sorts.
        powers = np.ceil(np.log2(np.maximum(tokens, 1))).astype(np.int64)
        yield from _by_row(rows, np.where(tokens == 0, 0, 1 << powers).astype(np.str_))
    else:
        yield from _by_row(rows, rows.labels[key])


def _by_row(rows: UnitRows, values: Array) -> Iterator[tuple[str, Selection]]:
    found, of_row = np.unique(values, return_inverse=True)
    if len(found) == 1:
        yield str(found[0]), Selection(None, rows.lengths)
        return
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(found)), side="right")
    for value, members in zip(found, np.split(order, ends[:-1]), strict=True):
        yield str(value), Selection(rows.begins[members], rows.lengths[members])


def _by_version(rows: UnitRows) -> Iterator[tuple[str, Selection]]:
    """By the version of each token; rows of a single version go as they are."""
    counted = rows.mask != 0
    low = np.full(len(rows.lengths), -1)
    high = low.copy()  # -1 also without tokens
    before = np.concatenate([[0], np.cumsum(counted)])
    has = before[rows.begins + rows.lengths] > before[rows.begins]
    if has.any():
        # The tokens that count lie one after the other, those of a row from its first one on.
        versions, firsts = rows.versions[counted], before[rows.begins[has]]
        low[has] = np.minimum.reduceat(versions, firsts)
        high[has] = np.maximum.reduceat(versions, firsts)
    is_mixed = high > low
    names = np.where(high < 0, "unknown", high.astype(np.str_))
    yield from (each for each in _by_row(rows, np.where(is_mixed, "", names)) if each[0] != "")
    mixed = np.flatnonzero(is_mixed)
    if not len(mixed):
        return
    begins, lengths = rows.begins[mixed], rows.lengths[mixed]
    whole = Selection(begins, lengths)
    versions, mask = whole.take(rows.versions), whole.take(rows.mask)
    of_row = np.repeat(np.arange(len(mixed)), lengths)
    for version in np.unique(versions[mask != 0]):
        here = (versions == version) & (mask != 0)
        members = np.bincount(of_row[here], minlength=len(mixed)) > 0
        held = np.repeat(members, lengths)
        name = "unknown" if version < 0 else str(version)
        yield name, Selection(begins[members], lengths[members], here[held].astype(np.uint8))


def _by_position(rows: UnitRows) -> Iterator[tuple[str, Selection]]:
    """By the position behind the first token that counts."""
    ends = rows.begins + rows.lengths
    counted = np.concatenate([np.flatnonzero(rows.mask), [len(rows.mask)]])
    firsts = np.minimum(counted[np.searchsorted(counted, rows.begins)], ends)
    for first, behind in itertools.pairwise(POSITIONS):
        begins = firsts + first
        has = begins < ends
        if not has.any():
            return
        lengths = np.minimum(ends, firsts + behind)[has] - begins[has]
        yield str(first), Selection(begins[has], lengths)


def order(key: str, values: Mapping[str, object]) -> list[str]:
    """The values of a key as people read them: numbers ascending, then texts."""
    del key
    return sorted(values, key=lambda v: (0, int(v), "") if v.isdigit() else (1, 0, v))
