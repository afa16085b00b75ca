"""Sums as a value: those of the parts of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class PartialSums:
    """The sums of a part of a step, before they are rounded.

    Those of several parts add up, in any order and grouping, to those of one batch with all rows,
    bit for bit: add ``sums`` and take the largest of ``maxima``, as an all-reduce of SUM and one of
    MAX over float64 do, of 8,192 vectors at most. ``Client.merge`` does both, and
    ``Client.metrics_of`` makes metrics of them. Lengths depend on the method and on whether tokens
    have versions.

    Attributes:
        sums: float64, numbers that add up.
        maxima: float64, numbers; a merge takes the largest of each.
    """

    __slots__ = ("maxima", "sums")

    def __init__(self, sums: Any, maxima: Any) -> None:
        """Takes both vectors, which anything that numpy reads may hold.

        Raises:
            ValueError: One is not a vector of numbers.
        """
        self.sums = _vector("sums", sums)
        self.maxima = _vector("maxima", maxima)

    @property
    def nbytes(self) -> int:
        """Bytes of both vectors."""
        return int(self.sums.nbytes + self.maxima.nbytes)

    def __eq__(self, other: object) -> bool:
        """Whether all bytes are equal."""
        if not isinstance(other, PartialSums):
            return NotImplemented
        return self._bytes() == other._bytes()

    def __hash__(self) -> int:
        """The hash of all bytes."""
        return hash(self._bytes())

    def __repr__(self) -> str:
        """Returns the lengths."""
        return f"PartialSums({len(self.sums)} sums, {len(self.maxima)} maxima)"

    def _bytes(self) -> tuple[bytes, bytes]:
        return self.sums.tobytes(), self.maxima.tobytes()


def to_message(sums: PartialSums) -> dict[str, Any]:
    """Returns the message."""
    return {"sums": sums.sums.tolist(), "maxima": sums.maxima.tolist()}


def from_message(message: Mapping[str, Any] | None) -> PartialSums | None:
    """Reads the message, in which NaN and the infinities are text."""
    if message is None:
        return None
    return PartialSums(_numbers(message.get("sums", ())), _numbers(message.get("maxima", ())))


def listed(parts: PartialSums | Iterable[PartialSums]) -> list[PartialSums]:
    """Returns the argument of ``merge`` and ``metrics_of`` as a list.

    Raises:
        TypeError: It holds something else.
    """
    found = [parts] if isinstance(parts, PartialSums) else list(parts)
    for index, part in enumerate(found):
        if not isinstance(part, PartialSums):
            raise TypeError(f"parts[{index}] must be PartialSums, not {type(part).__name__}")
    return found


def _vector(name: str, values: Any) -> Any:
    vector = np.ascontiguousarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, not of shape {vector.shape}")
    return vector


def _numbers(values: Iterable[Any]) -> list[float]:
    return [float(value) for value in values]
