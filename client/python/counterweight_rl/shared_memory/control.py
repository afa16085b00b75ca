"""The connection that registers regions with a server."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from counterweight_rl.arrays import cuda
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.region import Region
from counterweight_rl.status import CODES, StatusCode

_PACKET = struct.Struct("<4sIIIQ16s")
_MAGIC = b"CWM1"
_REGISTER, _RELEASE, _REGISTER_DEVICE, _REGISTER_PARTS = 1, 2, 3, 4
_MOST_ANSWER_BYTES = 512  # more than an answer can have
_SLICE_SECONDS = 0.05  # a wait ends within this time after its client is closed


class RefusedError(Exception):
    """The server refuses a region.

    Attributes:
        code: The reason.
    """

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


@dataclass(frozen=True)
class Answer:
    """The server's answer to a packet; see proto/README.md."""

    code: int
    number: int
    handle: bytes
    message: str


def _ignore(_: Answer) -> None:
    pass


class Control:
    """One connection; its end releases its regions. Not thread-safe.

    The server answers the packets in their order. Only ``register`` waits for an answer.
    """

    def __init__(self, path: str, is_over: Callable[[], bool] = lambda: False) -> None:
        """Connects; ``is_over`` ends a wait.

        Raises:
            TimeoutError: The server accepts no connections now.
            OSError: No server listens there.
        """
        self._is_over = is_over
        self._unsent: deque[tuple[bytes, Callable[[Answer], None]]] = deque()
        self._awaited: deque[Callable[[Answer], None]] = deque()
        self._late = 0
        self._is_broken = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.setblocking(False)
            self._socket.connect(path)
        except BlockingIOError:
            self._socket.close()
            raise TimeoutError("it accepts no connections") from None
        except BaseException:
            self._socket.close()
            raise

    @property
    def is_late(self) -> bool:
        """Whether the server owes an answer beyond a deadline, as far as has been read."""
        return self._late > 0 or bool(self._unsent)

    @property
    def is_broken(self) -> bool:
        """Whether an exception, such as Ctrl-C, separated a packet from its place in the order.

        The next answer would be taken for another packet's.
        """
        return self._is_broken

    def register(self, region: Region | DeviceRegion, end: float) -> bytes:
        """Registers a region until ``end`` on the monotonic clock; returns its handle.

        Raises:
            RefusedError: The server refuses it; the connection stays usable.
            NotExportableError: The driver gives no descriptors; nothing was sent.
            TimeoutError: There is no answer; the connection stays usable.
            OSError: The connection is lost, or the wait is over.
        """
        answers: list[Answer] = []

        def take(answer: Answer) -> None:
            if is_awaited:
                answers.append(answer)
                return
            self._late -= 1
            if answer.code == 0:
                self.release(answer.handle)

        is_awaited = True
        if isinstance(region, DeviceRegion):
            allocation = region.allocation
            operation = _REGISTER_PARTS if allocation.in_parts else _REGISTER_DEVICE
            packet = _PACKET.pack(_MAGIC, operation, region.access, 0, region.size, b"")
            packet += allocation.device + allocation.handle
            # The packet carries the descriptors, so that ours need not wait for the answer.
            with cuda.descriptors(allocation) as files:
                self._send(packet, files, take, end)
        else:
            packet = _PACKET.pack(_MAGIC, _REGISTER, region.access, 0, region.size, b"")
            self._send(packet, [region.fd], take, end)
        try:
            while not answers:
                self._wait(select.POLLIN, end)
                try:
                    self._read()
                except OSError:
                    # A server that refuses a peer answers and closes at once.
                    if not answers:
                        raise
        except BaseException:
            is_awaited = False
            self._late += 1
            raise
        (answer,) = answers
        if answer.code != 0:
            raise RefusedError(CODES.get(answer.code, StatusCode.UNKNOWN), answer.message)
        return answer.handle

    def release(self, handle: bytes, take: Callable[[Answer], None] = _ignore) -> None:
        """Releases a region by a later ``pump``, which gives the answer to ``take``.

        The answer's number is not 0 while requests use a device's region; then release it again.
        """
        self._unsent.append((_PACKET.pack(_MAGIC, _RELEASE, 0, 0, 0, handle), take))

    def pump(self) -> None:
        """Sends what there is room for, and reads what is there; does not wait.

        Raises:
            OSError: The connection is lost.
        """
        self._read()
        while self._unsent:
            packet, take = self._unsent[0]
            self._is_broken = True
            try:
                self._socket.send(packet)
            except BlockingIOError:
                self._is_broken = False
                return
            self._unsent.popleft()
            self._awaited.append(take)
            self._is_broken = False

    def close(self) -> None:
        """Ends the connection, which releases all its regions at the server."""
        self._socket.close()

    def _send(
        self, packet: bytes, fds: list[int], take: Callable[[Answer], None], end: float
    ) -> None:
        while True:
            self.pump()
            if not self._unsent:
                self._is_broken = True
                try:
                    socket.send_fds(self._socket, [packet], fds)
                except BlockingIOError:
                    self._is_broken = False
                except (BrokenPipeError, ConnectionResetError):
                    # A server that refuses a peer sends the reason before it closes.
                    self._read()
                    raise
                else:
                    self._awaited.append(take)
                    self._is_broken = False
                    return
            self._wait(select.POLLIN | select.POLLOUT, end)

    def _wait(self, events: int, end: float) -> None:
        poll = select.poll()
        poll.register(self._socket, events)
        while True:
            if self._is_over():
                raise ConnectionAbortedError("the client is closed")
            seconds = end - time.monotonic()
            if seconds <= 0:
                raise TimeoutError("it does not answer")
            if poll.poll(1000 * min(seconds, _SLICE_SECONDS)):
                return

    def _read(self) -> None:
        """Takes the answers that have arrived, and notices the connection's end."""
        while True:
            self._is_broken = True
            try:
                data = self._receive()
            except BlockingIOError:
                self._is_broken = False
                return
            if not data:
                raise ConnectionResetError("the server closed the connection")
            if len(data) < _PACKET.size or data[:4] != _MAGIC:
                raise ConnectionError("the server sent something else than an answer")
            _, code, _, _, number, handle = _PACKET.unpack(data[: _PACKET.size])
            message = str(data[_PACKET.size :], "utf-8", "replace")
            if not self._awaited:  # the server refuses the connection
                raise ConnectionRefusedError(message or "the server ends the connection")
            self._awaited.popleft()(Answer(code, number, handle, message))
            self._is_broken = False

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(_MOST_ANSWER_BYTES)
        except ConnectionResetError:
            # It precedes what the server sent last, if that left a packet unread.
            return self._socket.recv(_MOST_ANSWER_BYTES)
