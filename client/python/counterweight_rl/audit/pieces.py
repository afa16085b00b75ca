"""Pieces of sequences, and parts of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterweight_rl.audit.part import Key
from counterweight_rl.audit.rows import Array, UnitRows


@dataclass(frozen=True)
class Tokens:
    """Pieces of sequences, one after the other.

    Attributes:
        rollout: As in ``UnitRows``.
        old: As in ``UnitRows``.
        mask: The same.
        versions: As in ``UnitRows.stale_versions``; None: staleness is not measured.
        lengths: Positions of each piece, int64.
    """

    rollout: Array
    old: Array
    mask: Array
    versions: Array | None
    lengths: Array


@dataclass(frozen=True)
class Split:
    """Pieces, to be summed by parts.

    Attributes:
        tokens: The pieces.
        part_of: The part of each piece, int32; -1: none.
        num_parts: How many there are; each has a piece.
        members: Keys, and the parts that have each.
    """

    tokens: Tokens
    part_of: Array
    num_parts: int
    members: Sequence[tuple[Key, Array]]

    def part(self, index: int) -> Tokens:
        """The pieces of a part."""
        here = np.flatnonzero(self.part_of == index)
        begins = np.cumsum(self.tokens.lengths) - self.tokens.lengths
        return pieces_of(self.tokens, begins[here], self.tokens.lengths[here])


def whole(rows: UnitRows) -> Tokens:
    """All sequences."""
    return Tokens(rows.rollout, rows.old, rows.mask, rows.stale_versions, rows.lengths)


def pieces_of(tokens: Tokens, begins: Array, lengths: Array) -> Tokens:
    """Pieces of so many positions, which begin there."""
    versions = tokens.versions
    return Tokens(
        take(tokens.rollout, begins, lengths),
        take(tokens.old, begins, lengths),
        take(tokens.mask, begins, lengths),
        None if versions is None else take(versions, begins, lengths),
        lengths,
    )


def take(array: Array, begins: Array, lengths: Array) -> Array:
    """The elements of pieces; a view where they are one run of the array."""
    ends = begins + lengths
    is_next = begins[1:] == ends[:-1]
    starts = begins[np.concatenate([[True], ~is_next])].tolist()
    stops = ends[np.concatenate([~is_next, [True]])].tolist()
    if len(starts) == 1:
        return array[starts[0] : stops[0]]
    # Copies whole runs: indices of single tokens take ten times as long.
    return np.concatenate([array[a:b] for a, b in zip(starts, stops, strict=True)])
