"""Objects that begin anew in forked children, where no thread of theirs is left."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Begins(Protocol):
    """An object with locks or threads."""

    def begin_in_child(self) -> None:
        """Replaces its locks, which another thread may have held, and what threads were to end."""


_objects: weakref.WeakSet[Begins] = weakref.WeakSet()


def begin_in_children(each: Begins) -> None:
    """Has ``each`` begin anew in every forked child, as long as it lives."""
    _objects.add(each)


def _begin_all() -> None:
    for each in list(_objects):
        each.begin_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_all)
