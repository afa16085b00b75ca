"""Device memory of calls without an answer, which the server may still use."""

from __future__ import annotations

import threading
import time
from functools import partial

from counterweight_rl.shared_memory.control import Answer, Control

# Exceeds the server's time between two checks for an abandoned call.
_SECONDS = 10.0
_PAUSE_SECONDS = 0.002

_given_up: list[object] = []
"""Memory of servers that did not answer: lost memory is better than overwritten memory."""


def give_up(owners: object) -> None:
    """Keeps memory permanently: no server remains that could release it."""
    _given_up.append(owners)


class Quarantine:
    """Keeps memory until its server reports that no request uses it. Not thread-safe."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._asked: dict[bytes, object] = {}
        self._used: dict[bytes, object] = {}

    def add(self, handle: bytes, owners: object) -> None:
        """Releases a region, and keeps its owners while it is in use."""
        self._asked[handle] = owners
        self._control.release(handle, partial(self._answered, handle))

    def ask_again(self) -> None:
        """Requests the state of each region that was in use."""
        used, self._used = self._used, {}
        for handle, owners in used.items():
            self.add(handle, owners)

    def outlast(self) -> None:
        """Closes the connection once no region is in use, in a thread if that is later.

        After some seconds the memory is lost.
        """
        if not (self._asked or self._used):
            self._control.close()
            return
        if self._control.is_broken:
            self._end()
            return
        try:
            threading.Thread(target=self._outlast, name="counterweight-kept", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._end()

    def _outlast(self) -> None:
        end = time.monotonic() + _SECONDS
        try:
            while (self._asked or self._used) and time.monotonic() < end:
                self.ask_again()
                self._control.pump()
                time.sleep(_PAUSE_SECONDS)
        except OSError:  # the server is gone, and its computation with it
            self._asked.clear()
            self._used.clear()
        self._end()

    def _end(self) -> None:
        _given_up.extend([*self._asked.values(), *self._used.values()])
        self._control.close()

    def _answered(self, handle: bytes, answer: Answer) -> None:
        owners = self._asked.pop(handle)
        # An error: the server no longer knows it.
        if answer.code == 0 and answer.number != 0:
            self._used[handle] = owners
