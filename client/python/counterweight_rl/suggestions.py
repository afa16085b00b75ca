"""Suggests a known name for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_MAX_LENGTH = 64  # of compared names; no known name is longer


def did_you_mean(name: Any, names: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: "; did you mean 'x'?", or "".

    Args:
        name: The unknown name; only strings have suggestions. The time is bounded for any length.
        names: The known names; lower case.
    """
    if not isinstance(name, str) or len(name) > _MAX_LENGTH:
        return ""
    nearest = get_close_matches(name.lower(), list(names), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
