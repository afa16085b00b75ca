"""Ends connections over Unix sockets if the server reads nothing.

gRPC ends a call only after its write to the connection, whatever its deadline
(https://github.com/grpc/grpc/issues/28434), and has no function that ends a connection. Over TCP
the kernel gives up after 20 s, by the TCP_USER_TIMEOUT that gRPC sets with keepalive; on a Unix
socket the call, and the closing of its channel, would wait as long as the server does.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from counterweight_rl.transport.target import Target

GRACE_SECONDS = 2.0
"""Time that gRPC has to end a call after its deadline or cancellation."""
_MOMENT_MILLISECONDS = 500  # a connection in use takes bytes again within this time
_LONGEST_ADDRESS = 110  # sizeof(sockaddr_un)
_SHUT_RDWR = 2


class Peer:
    """The server of one client. Thread-safe."""

    def __init__(self, target: Target) -> None:
        self._address = target.socket
        self._running: set[int] = set()

    @contextlib.contextmanager
    def bounds(self, timeout: float | None) -> Iterator[None]:
        """Surrounds a call of at most ``timeout`` seconds; None: no limit.

        The connection is also examined after a call that ended early, since later calls would
        wait for it.
        """
        if not self._address:
            yield
            return
        due = math.inf if timeout is None else time.monotonic() + timeout + GRACE_SECONDS
        number = _watch.add(self._address, due)
        self._running.add(number)
        try:
            yield
        except BaseException as error:
            if _ended_early(error):
                self._examine_later()
            raise
        finally:
            self._running.discard(number)
            _watch.remove(number)

    def closes(self) -> None:
        """Prepares the closing of channels, which waits for the calls on them."""
        if self._running:
            self._examine_later()

    def _examine_later(self) -> None:
        _watch.add(self._address, time.monotonic() + GRACE_SECONDS, once=True)


@dataclass(frozen=True)
class _Entry:
    address: bytes
    due: float
    once: bool


class _Watch:
    """A thread that examines connections when they are due; all clients of a process share it."""

    # Calls that a fork interrupts have numbers that no later one has in the child.
    _numbers = itertools.count()

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: dict[int, _Entry] = {}
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None

    def add(self, address: bytes, due: float, once: bool = False) -> int:
        number = next(self._numbers)
        with self._changed:
            if self._thread is None and due < math.inf:
                thread = threading.Thread(target=self._run, name="write-watchdog", daemon=True)
                thread.start()  # raises at the end of the process, and then nothing is kept
                self._thread = thread
            self._entries[number] = _Entry(address, due, once)
            if due < self._wakes_at:
                self._changed.notify()
        return number

    def remove(self, number: int) -> None:
        """Does not wake the thread: a call must not cost a switch between threads."""
        with self._changed:
            self._entries.pop(number, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = {number: e for number, e in self._entries.items() if e.due <= now}
                if not due:
                    self._wakes_at = min((e.due for e in self._entries.values()), default=math.inf)
                    pause = self._wakes_at - now
                    self._changed.wait(pause if pause < threading.TIMEOUT_MAX else None)
                    continue
                for number, entry in due.items():
                    if entry.once:
                        del self._entries[number]
                    else:
                        self._entries[number] = _Entry(entry.address, now + GRACE_SECONDS, False)
            for address in {entry.address for entry in due.values()}:
                end_stalled(address)


def end_stalled(address: bytes) -> None:
    """Shuts down the process's sockets that are connected to ``address`` and take no byte."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in _descriptors():
        try:
            # gRPC may close its descriptor at any time; this one stays the socket's.
            own = os.dup(int(name))
        except OSError:
            continue
        try:
            if _peer_of(libc, own) == address and not _is_writable(own):
                libc.shutdown(own, _SHUT_RDWR)
        finally:
            os.close(own)


def _descriptors() -> list[str]:
    try:
        return os.listdir("/proc/self/fd")
    except OSError:  # not Linux
        return []


def _peer_of(libc: ctypes.CDLL, descriptor: int) -> bytes:
    """Returns the path of a connected Unix socket's peer; empty for all else.

    ``socket.socket`` would make others' sockets non-blocking where a default timeout is set.
    """
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return b""
    address = ctypes.create_string_buffer(_LONGEST_ADDRESS)
    size = ctypes.c_uint(_LONGEST_ADDRESS)
    if libc.getpeername(descriptor, address, ctypes.byref(size)) != 0:
        return b""
    family, path = address.raw[:2], address.raw[2 : size.value]
    if int.from_bytes(family, sys.byteorder) != 1:  # AF_UNIX
        return b""
    return path if path.startswith(b"\0") else path.split(b"\0")[0]


def _is_writable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(_MOMENT_MILLISECONDS))


def _ended_early(error: BaseException) -> bool:
    """Whether a call ended by its deadline or a cancellation; an RpcError has a code."""
    code = getattr(error, "code", None)
    if isinstance(error, Exception):
        return callable(code) and getattr(code(), "name", "") in ("DEADLINE_EXCEEDED", "CANCELLED")
    return True


_watch = _Watch()
# A child has no thread, and the lock may be held by another one of the parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watch.__init__)  # type: ignore[misc]
