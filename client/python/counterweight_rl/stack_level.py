"""Finds the caller's line for a warning."""

from __future__ import annotations

import sys

# Frames of these modules lie between the caller and the called function: this package, and the
# calls of torch.nn.Module that lead to ``forward``.
_PACKAGE = __name__.rpartition(".")[0] + "."
_MODULE_CALLS = "torch.nn.modules.module"


def stack_level() -> int:
    """Returns the ``stacklevel`` for a ``warnings.warn`` beside it: the first line outside."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    return level


def _is_between(module: str) -> bool:
    return module.startswith(_PACKAGE) or module == _MODULE_CALLS
