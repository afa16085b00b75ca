"""The line of the caller that a warning points at."""

from __future__ import annotations

import sys

# Frames of these are between a caller and what the caller called: this package, and the calls of
# torch.nn.Module that lead to ``forward``.
_PACKAGE = __name__.rpartition(".")[0] + "."
_MODULE_CALLS = "torch.nn.modules.module"


def stack_level() -> int:
    """The ``stacklevel`` of a ``warnings.warn`` beside this call: the first line outside."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    return level


def _is_between(module: str) -> bool:
    return module.startswith(_PACKAGE) or module == _MODULE_CALLS
