"""The regions that a server knows."""

from __future__ import annotations

import math
import threading
import time
from collections import deque

from counterweight_rl.errors import DeadlineError
from counterweight_rl.shared_memory.control import Control
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.quarantine import Quarantine, give_up
from counterweight_rl.shared_memory.region import Access, Region
from counterweight_rl.status import StatusCode

AnyRegion = Region | DeviceRegion

# A bound for a server that does not answer; a healthy one answers at once.
_PATIENCE_SECONDS = 10.0
# After a late answer nothing waits for the next one for this long.
_AVOIDING_SECONDS = 2.0


class UnusableError(Exception):
    """Shared memory is not possible for a batch; other transports may be.

    Attributes:
        lasting: Whether the next call would fail too: no server at the socket, or a closed client.
        is_late: Whether the server does not answer in time, which may pass.
    """

    def __init__(self, message: str, *, lasting: bool = False, is_late: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting
        self.is_late = is_late


class Registry:
    """Registers regions over one connection, made on demand. Thread-safe.

    Only ``handle`` waits, until its caller's deadline. The connection belongs to the thread that
    has the turn; what others want from it waits in a queue that the next turn serves. Finalizers
    may therefore call everything but ``handle`` at any time.
    """

    def __init__(self, path: str) -> None:
        """Connects to ``path``, later."""
        self._path = path
        self._turn = threading.Lock()
        self._handles: dict[AnyRegion, bytes] = {}
        self._releases: deque[tuple[bytes, object]] = deque()  # handle, and owners to be kept
        self._renews = False
        self._stopped = False
        self._closed = False
        self._avoids_until = -math.inf
        # Regions of connections that were given up while a call used them.
        self._left: set[AnyRegion] = set()
        # The following belong to the turn.
        self._control: Control | None = None
        self._quarantine: Quarantine | None = None

    def handle(self, region: AnyRegion, end: float) -> bytes:
        """Returns the server's handle of the region; registers it if necessary.

        Raises:
            DeadlineError: ``end``, on the monotonic clock, has passed.
            UnusableError: There is no connection, or no answer.
            RefusedError: The server refuses it.
            NotExportableError: The driver gives no descriptors.
        """
        known = self._handles.get(region)
        if known is not None and not self._turn.acquire(blocking=False):
            return known
        if known is None:
            seconds = min(max(0.0, end - time.monotonic()), threading.TIMEOUT_MAX)
            if not self._turn.acquire(timeout=seconds):
                raise _deadline()
        try:
            self._refresh()
            if self._quarantine is not None:
                self._quarantine.ask_again()
            if region not in self._handles:
                self._handles[region] = self._register(region, end)
            return self._handles[region]
        finally:
            self._turn.release()
            self._serve()

    def release(self, region: AnyRegion) -> None:
        """Releases a region, later if the connection is in use."""
        self._left.discard(region)
        handle = self._handles.pop(region, None)
        if handle is not None:
            self._releases.append((handle, None))
            self._serve()

    def keep(self, region: AnyRegion, owners: object) -> None:
        """Releases a region, and keeps ``owners`` while requests use it."""
        handle = self._handles.pop(region, None)
        if handle is not None:
            self._releases.append((handle, owners))
            self._serve()
        elif self._closed or region in self._left:
            give_up(owners)

    def renew(self, path: str | None = None) -> None:
        """Registers all regions anew on their next use, perhaps with another server."""
        self._path = self._path if path is None else path
        self._avoids_until = -math.inf
        self._renews = True
        self._serve()

    def stop(self) -> None:
        """Ends waits, and permits no other. Idempotent."""
        self._stopped = True

    def close(self) -> None:
        """Ends the connection without waiting for the server. Idempotent."""
        self._stopped = self._closed = True
        self._serve()

    def _serve(self) -> None:
        # Repeats, since the turn's thread may not have seen the last entries.
        while (
            self._releases or self._renews or (self._closed and self._control is not None)
        ) and self._turn.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._turn.release()

    # All following methods require the turn.

    def _refresh(self) -> None:
        """Does what others want, and notices the connection's end."""
        if self._control is not None and self._control.is_broken:
            self._give_up()
        while self._releases:
            handle, owners = self._releases.popleft()
            if self._control is None or self._quarantine is None:
                continue  # the server has forgotten it
            if owners is None:
                self._control.release(handle)
            else:
                self._quarantine.add(handle, owners)
        try:
            if self._control is not None:
                self._control.pump()
        except OSError:
            self._lose()
        if self._renews or self._closed:
            self._renews = False
            self._give_up()

    def _register(self, region: AnyRegion, end: float) -> bytes:
        again = True
        while True:
            if self._stopped:
                raise UnusableError("the client is closed", lasting=True)
            begin = time.monotonic()
            if begin >= end:
                raise _deadline()
            if begin < self._avoids_until and (self._control is None or self._control.is_late):
                raise _late(self._path)
            patience = begin + _PATIENCE_SECONDS
            try:
                return self._connect().register(region, min(end, patience))
            except TimeoutError as error:
                self._avoids_until = time.monotonic() + _AVOIDING_SECONDS
                if end <= patience:
                    raise _deadline() from None
                self._give_up()
                raise _late(self._path) from error
            except OSError as error:
                if self._stopped:
                    continue
                self._lose()
                if not again:
                    raise UnusableError(f"the shared-memory socket: {error}") from error
            again = False

    def _connect(self) -> Control:
        if self._control is None:
            try:
                self._control = Control(self._path, lambda: self._stopped)
            except TimeoutError as error:
                self._avoids_until = time.monotonic() + _AVOIDING_SECONDS
                raise _late(self._path) from error
            except OSError as error:
                raise UnusableError(
                    f"cannot connect to {self._path}: {error}", lasting=True
                ) from error
            self._quarantine = Quarantine(self._control)
        return self._control

    def _lose(self) -> None:
        """Forgets a connection that has ended, and with it the server's computation."""
        self._handles.clear()
        self._quarantine = None
        if self._control is not None:
            self._control.close()
            self._control = None

    def _give_up(self) -> None:
        """Ends a connection if its server may still write to memory that calls use."""
        for region in list(self._handles):
            if isinstance(region, DeviceRegion) and region.access is Access.WRITE and region.calls:
                self._left.add(region)
        self._handles.clear()
        if self._quarantine is not None:
            self._quarantine.outlast()
        self._control = self._quarantine = None


def _deadline() -> DeadlineError:
    return DeadlineError(
        "Deadline Exceeded while the server registers the batch's memory",
        code=StatusCode.DEADLINE_EXCEEDED,
    )


def _late(path: str) -> UnusableError:
    return UnusableError(f"the server at {path} does not answer in time", is_late=True)
