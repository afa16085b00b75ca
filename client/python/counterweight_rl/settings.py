"""Checks of numbers among a client's settings."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

_MOST_SECONDS = 1e8  # gRPC cannot represent a deadline from about 1e10 s on


def read_seconds(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Returns a number of seconds; infinity, for no limit, from 1e8 (three years) on.

    Raises:
        TypeError: It is not a number; the message begins with ``name``.
        ValueError: It is not above 0, or 0 with ``or_zero``; NaN is not.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:  # an int beyond the largest float
        overflowing: Any = value
        seconds = math.inf if overflowing > 0 else -math.inf
    if not (seconds > 0 or (or_zero and seconds == 0)):
        bound = "at least 0" if or_zero else "above 0"
        raise ValueError(f"{name} must be {bound} seconds; got {seconds:g}")
    return seconds if seconds < _MOST_SECONDS else math.inf


def read_timeout(value: Any) -> float | None:
    """Returns the argument ``timeout`` in seconds; None: no limit.

    Raises:
        TypeError: It is neither None nor a number.
        ValueError: It is not above 0.
    """
    seconds = math.inf if value is None else read_seconds("timeout", value)
    return None if math.isinf(seconds) else seconds


def read_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns an integer.

    Raises:
        TypeError: It is not an integer; the message begins with ``name``.
        ValueError: It is out of its range.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    count = operator.index(value)
    if count < least or (most is not None and count > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bound}; got {count}")
    return count
