"""Chooses the release to reproduce: the installed peer's."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import warnings

from counterweight_rl.stack_level import stack_level

# The oldest releases that the dialects support. Older ones get their numbers, which are the
# nearest.
_OLDEST = {
    "openrlhf": (0, 11, 0),
    "skyrl": (0, 3, 0),
    "trl": (1, 9, 0),
    "verl": (0, 9, 0),
}


def release_of(system: str) -> str:
    """Returns ``Dialect.release``: "0.9.1", or "" for the newest if the peer is not installed."""
    installed = _installed(system)
    if installed is None:
        return ""
    oldest = _OLDEST[system]
    if _numbers(installed) >= oldest:
        return installed
    text = ".".join(map(str, oldest))
    warnings.warn(
        f"{system} {installed} is older than {text}, the oldest release whose numbers are known; "
        "the answers are those of that one",
        stacklevel=stack_level(),
    )
    return text


def is_since(system: str, release: tuple[int, int, int]) -> bool:
    """Returns whether the installed peer is that release or newer; True if none is installed."""
    installed = _installed(system)
    return installed is None or _numbers(installed) >= release


@functools.cache
def _installed(system: str) -> str | None:
    """Returns None if it is not installed or its version has no numbers."""
    try:
        version = importlib.metadata.version(system)
    except importlib.metadata.PackageNotFoundError:
        return None
    return version if re.match(r"\d+", version) else None


def _numbers(version: str) -> tuple[int, int, int]:
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", version)
    assert found is not None  # _installed has matched it
    major, minor, patch = (int(number or 0) for number in found.groups())
    return major, minor, patch
