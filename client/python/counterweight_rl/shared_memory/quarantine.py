"""Device memory of calls without an answer, which the server may still use."""

from __future__ import annotations

import time

from counterweight_rl.shared_memory.control import Control

# Exceeds the server's time between two checks for an abandoned call.
_SECONDS = 10.0
_PAUSE_SECONDS = 0.002

_given_up: list[object] = []
"""Memory of servers that did not answer: lost memory is better than overwritten memory."""


class Quarantine:
    """Keeps memory until the server reports that no request uses it. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: list[tuple[Control, bytes, object]] = []

    def add(self, control: Control, handle: bytes, owners: object) -> None:
        """Releases a region, and keeps its owners while it is in use."""
        self._kept.append((control, handle, owners))
        self.look()

    def give_up(self, owners: object) -> None:
        """Keeps memory permanently: no server remains to ask about it."""
        _given_up.append(owners)

    def look(self) -> None:
        """Asks for each region once."""
        self._kept = [kept for kept in self._kept if _is_used(*kept)]

    def wait(self) -> None:
        """Asks until no region is in use, or for some seconds."""
        end = time.monotonic() + _SECONDS
        self.look()
        while self._kept and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
            self.look()
        _given_up.extend(owners for _, _, owners in self._kept)
        self._kept.clear()


def _is_used(control: Control, handle: bytes, owners: object) -> bool:
    try:
        return control.uses(handle)
    except TimeoutError:
        _given_up.append(owners)
        return False
    except OSError:  # the server is gone, and its computation with it
        return False
