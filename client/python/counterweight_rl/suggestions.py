"""The known name that an unknown one may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_MAX_LENGTH = 64  # of names that are compared; no known one is longer


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """How a message about an unknown name ends: "; did you mean 'x'?", or "" if nothing is near.

    Args:
        name: What the caller wrote; only strings are near to anything. The time is bounded however
            long it is.
        names: What would be right; lower case.
    """
    if not isinstance(name, str) or len(name) > _MAX_LENGTH:
        return ""
    nearest = get_close_matches(name.lower(), list(names), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
