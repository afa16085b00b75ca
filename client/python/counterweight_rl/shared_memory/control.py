"""The connection that registers regions with a server."""

from __future__ import annotations

import socket
import struct
import time

from counterweight_rl.arrays import cuda
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.region import Region
from counterweight_rl.status import CODES, StatusCode

_PACKET = struct.Struct("<4sIIIQ16s")
_MAGIC = b"CWM1"
_REGISTER, _RELEASE, _REGISTER_DEVICE, _REGISTER_PARTS = 1, 2, 3, 4
_MOST_ANSWER_BYTES = 512  # more than an answer can have
# A bound for a server that does not answer; a healthy one answers at once.
_SECONDS = 10.0


class RefusedError(Exception):
    """The server refuses a region.

    Attributes:
        code: The reason.
    """

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


class Control:
    """One connection; its end releases its regions. Not thread-safe."""

    def __init__(self, path: str) -> None:
        """Connects.

        Raises:
            OSError: No server listens there.
        """
        self._unread = 0  # answers to releases, which no call waits for
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.settimeout(_SECONDS)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def is_open(self) -> bool:
        """Returns whether the connection is open, as far as is known without a packet."""
        try:
            self._drain()
        except OSError:
            return False
        return True

    def register(self, region: Region | DeviceRegion) -> bytes:
        """Registers a region; returns its handle.

        Raises:
            RefusedError: The server refuses it; the connection stays usable.
            NotExportableError: The driver gives no descriptors; nothing was sent.
            OSError: The connection is lost.
        """
        if isinstance(region, DeviceRegion):
            allocation = region.allocation
            operation = _REGISTER_PARTS if allocation.in_parts else _REGISTER_DEVICE
            packet = _PACKET.pack(_MAGIC, operation, region.access, 0, region.size, b"")
            packet += allocation.device + allocation.handle
            # The packet carries the descriptors, so that ours need not wait for the answer.
            with cuda.descriptors(allocation) as files:
                end = self._send(packet, files)
            return self._answer(end)[1]
        packet = _PACKET.pack(_MAGIC, _REGISTER, region.access, 0, region.size, b"")
        return self._exchange(packet, [region.fd])[1]

    def uses(self, handle: bytes) -> bool:
        """Releases a device's region; returns whether requests still use it. If so, call it again.

        Raises:
            OSError: The connection is lost.
        """
        try:
            return self._exchange(_PACKET.pack(_MAGIC, _RELEASE, 0, 0, 0, handle), [])[0] != 0
        except RefusedError:  # the server no longer knows it
            return False

    def release(self, handle: bytes) -> None:
        """Releases a region; waits only for room in the socket.

        Raises:
            OSError: The connection is lost.
        """
        packet = _PACKET.pack(_MAGIC, _RELEASE, 0, 0, 0, handle)
        while True:
            self._drain()
            try:
                self._socket.send(packet)
                break
            except BlockingIOError:
                if self._unread == 0:
                    raise
                self._socket.settimeout(_SECONDS)
                self._receive()
                self._unread -= 1
        self._unread += 1

    def close(self) -> None:
        """Ends the connection, which releases all its regions at the server."""
        self._socket.close()

    def _drain(self) -> None:
        """Reads pending answers to releases, and notices the connection's end."""
        self._socket.settimeout(0)
        while True:
            try:
                *_, message = self._receive()
            except BlockingIOError:
                return
            self._unread -= 1
            if self._unread < 0:  # an unsolicited packet: the server refuses the connection
                raise ConnectionRefusedError(message or "the server ends the connection")

    def _exchange(self, packet: bytes, fds: list[int]) -> tuple[int, bytes]:
        """Returns the number and the handle of the answer."""
        return self._answer(self._send(packet, fds))

    def _send(self, packet: bytes, fds: list[int]) -> float:
        """Returns the time at which the answer is late."""
        self._drain()
        end = time.monotonic() + _SECONDS
        self._socket.settimeout(_SECONDS)
        socket.send_fds(self._socket, [packet], fds)
        return end

    def _answer(self, end: float) -> tuple[int, bytes]:
        while True:
            self._socket.settimeout(max(end - time.monotonic(), 0.001))
            code, number, handle, message = self._receive()
            if self._unread == 0:
                break
            self._unread -= 1
        if code != 0:
            raise RefusedError(CODES.get(code, StatusCode.UNKNOWN), message)
        return number, handle

    def _receive(self) -> tuple[int, int, bytes, str]:
        answer = self._socket.recv(_MOST_ANSWER_BYTES)
        if not answer:
            raise ConnectionResetError("the server closed the connection")
        if len(answer) < _PACKET.size or answer[:4] != _MAGIC:
            raise ConnectionError("the server sent something else than an answer")
        _, code, _, _, number, handle = _PACKET.unpack(answer[: _PACKET.size])
        return code, number, handle, str(answer[_PACKET.size :], "utf-8", "replace")
