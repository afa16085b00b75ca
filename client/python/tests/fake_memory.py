"""The server's end of shared memory, and Correct with it, as proto/README.md defines them."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import pathlib
import re
import select
import socket
import struct
import threading
import time
from typing import Any

import numpy as np
from fake_cuda import UUID, map_parts, open_handle
from fake_server import FakeServer, Handler, bad_request

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2

PACKET = struct.Struct("<4sIIIQ16s")
REGISTER, RELEASE, REGISTER_DEVICE, REGISTER_PARTS = 1, 2, 3, 4
READ, WRITE = 1, 2


class FakeMemory:
    """Registers regions at ``path``; ``refuse`` is a gRPC status code for refused registrations.

    Attributes:
        regions: Registered regions: access and mapping by handle.
        packets: Every received packet.
        parts: Number of descriptors of each registration in parts.
        refused_sizes: Sizes of device allocations that are refused.
        refused_operations: Operations that are refused.
        busy: Whether requests still use released device memory.
        connections: Number of connections so far.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = str(path)
        self.regions: dict[bytes, tuple[int, Any]] = {}
        self.packets: list[tuple[int, ...]] = []
        self.connections = 0
        self.refuse = 0
        self.parts: list[int] = []
        self.refused_sizes: set[int] = set()
        self.refused_operations: set[int] = set()
        self.silent = False
        self.busy = False
        self._frozen = False
        self._released: set[bytes] = set()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(self.path)
        self._listening.listen()
        self._open: dict[int, tuple[socket.socket, set[bytes]]] = {}
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        os.write(self._woken, b"x")
        self._thread.join()
        for fd in list(self._open):
            self._end(fd)
        self._listening.close()
        os.close(self._wake)
        os.close(self._woken)

    def freeze(self) -> None:
        """Reads no packet until ``thaw``; the kernel accepts connections meanwhile."""
        self._frozen = True
        os.write(self._woken, b"f")

    def thaw(self) -> None:
        self._frozen = False
        os.write(self._woken, b"t")

    def disconnect(self) -> None:
        """Acts like a restarted server, which knows no regions."""
        for connection, _ in list(self._open.values()):
            connection.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Loses the regions, but not the connections."""
        self.regions.clear()

    def _run(self) -> None:
        while True:
            watched = [] if self._frozen else [self._listening, *self._open]
            ready = select.select([self._wake, *watched], [], [])[0]
            if self._wake in ready:
                if os.read(self._wake, 1) == b"x":
                    return
                continue
            for fd in ready:
                if fd is self._listening:
                    connection, _ = self._listening.accept()
                    self.connections += 1
                    self._open[connection.fileno()] = (connection, set())
                else:
                    try:
                        self._take(fd)
                    except OSError:  # the client left without reading its answers
                        self._end(fd)

    def _take(self, fd: int) -> None:
        connection, handles = self._open[fd]
        data, fds, _, _ = socket.recv_fds(connection, 128, 254)
        if not data:
            self._end(fd)
            return
        magic, operation, access, zero, size, handle = PACKET.unpack(data[: PACKET.size])
        assert (magic, zero) == (b"CWM1", 0)
        self.packets.append((operation, access, size))
        if self.silent:
            for memfd in fds:
                os.close(memfd)
            return
        if operation == RELEASE:
            assert not fds
            assert (access, size) == (0, 0)
            handles.discard(handle)
            found = self.regions.pop(handle, None)
            code = 0 if found or handle in self._released else 5
            in_use = self.busy and (found is None or found[0] == WRITE)
            self._released = self._released | {handle} if in_use else self._released - {handle}
            connection.send(
                PACKET.pack(b"CWM1", code, 0, 0, in_use, b"") + b"no such region" * (code > 0)
            )
            return
        if operation == REGISTER_DEVICE:
            assert not fds
            self._open_device(connection, handles, access, size, data[PACKET.size :])
            return
        if operation == REGISTER_PARTS:
            assert handle == bytes(16)
            self._open_parts(connection, handles, access, size, data[PACKET.size :], fds)
            return
        (memfd,) = fds
        if self.refuse:
            os.close(memfd)
            connection.send(PACKET.pack(b"CWM1", self.refuse, 0, 0, 0, b"") + b"I will not")
            return
        assert handle == bytes(16)
        seals = fcntl.fcntl(memfd, fcntl.F_GET_SEALS)
        assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        status = os.fstat(memfd)
        assert status.st_size == size
        assert status.st_blocks * 512 >= size  # its pages exist
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if access == WRITE else 0)
        handle = os.urandom(16)
        self.regions[handle] = (access, mmap.mmap(memfd, size, prot=prot))
        os.close(memfd)
        handles.add(handle)
        connection.send(PACKET.pack(b"CWM1", 0, 0, 0, 0, handle))

    def _open_device(
        self, connection: socket.socket, handles: set[bytes], access: int, size: int, name: bytes
    ) -> None:
        assert len(name) == 16 + 64
        if not self._refuses_device(connection, REGISTER_DEVICE, size, name[:16]):
            mapping = open_handle(name[16:])
            assert len(mapping) == size
            self._answer_device(connection, handles, access, mapping)

    def _open_parts(
        self,
        connection: socket.socket,
        handles: set[bytes],
        access: int,
        size: int,
        device: bytes,
        fds: list[int],
    ) -> None:
        assert len(device) == 16
        self.parts.append(len(fds))
        part_size = size // len(fds)
        assert {os.fstat(fd).st_size for fd in fds} == {part_size}
        mapping = np.frombuffer(map_parts(fds, part_size), np.uint8)
        assert len(mapping) == size
        for fd in fds:
            os.close(fd)
        if not self._refuses_device(connection, REGISTER_PARTS, size, device):
            self._answer_device(connection, handles, access, mapping)

    def _refuses_device(
        self, connection: socket.socket, operation: int, size: int, device: bytes
    ) -> bool:
        if not (
            self.refuse
            or device != UUID
            or size in self.refused_sizes
            or operation in self.refused_operations
        ):
            return False
        refusal = PACKET.pack(b"CWM1", self.refuse or 3, 0, 0, 0, b"")
        connection.send(refusal + b"I will not")
        return True

    def _answer_device(
        self, connection: socket.socket, handles: set[bytes], access: int, mapping: Any
    ) -> None:
        handle = os.urandom(16)
        self.regions[handle] = (access, mapping)
        handles.add(handle)
        connection.send(PACKET.pack(b"CWM1", 0, 0, 0, 0, handle))

    def _end(self, fd: int) -> None:
        connection, handles = self._open.pop(fd)
        connection.close()
        for handle in handles:
            self.regions.pop(handle, None)

    def serve(self, handler: Handler) -> Handler:
        """Fills in the inputs from memory, and writes the outputs there."""

        def served(request: Any, context: Any) -> Any:
            wrong = [
                f"tensors[{i}].shared_memory.handle"
                for i, tensor in enumerate(request.tensors)
                if tensor.HasField("shared_memory")
                and tensor.shared_memory.handle not in self.regions
            ]
            if wrong:
                bad_request(*wrong)(request, context)
            for tensor in request.tensors:
                if tensor.HasField("shared_memory"):
                    tensor.data = bytes(self._range(tensor.shared_memory, READ))
            response = service_pb2.CorrectResponse()
            response.CopyFrom(handler(request, context))
            answered = {tensor.role: tensor for tensor in response.tensors}
            wrong = [
                f"destinations[{i}].role"
                for i, destination in enumerate(request.destinations)
                if destination.role not in answered and request.outputs
            ]
            if wrong:
                bad_request(*wrong)(request, context)
            for destination in request.destinations:
                if destination.role not in answered:
                    continue
                tensor = answered[destination.role]
                assert tensor.dtype == destination.dtype
                assert len(tensor.data) == destination.shared_memory.length
                self._range(destination.shared_memory, WRITE)[:] = tensor.data
                tensor.ClearField("data")
                tensor.shared_memory.CopyFrom(destination.shared_memory)
            return response

        return served

    def _range(self, shared: Any, access: int) -> memoryview:
        lent, mapping = self.regions[shared.handle]
        assert lent == access
        assert shared.offset + shared.length <= len(mapping)
        return memoryview(mapping)[shared.offset : shared.offset + shared.length]


Sharing = tuple[FakeServer, FakeMemory]


def sharing_server(folder: pathlib.Path) -> Sharing:
    """Starts a server on a Unix socket that offers shared memory, and streams."""
    server = FakeServer(f"unix:{folder}/s")
    memory = FakeMemory(folder / "m")
    server.info.features.extend(["stream", "shared_memory"])
    server.info.shared_memory_socket = memory.path
    return server, memory


def held() -> int:
    """Returns the number of shareable mappings in this process: ours and the fake server's."""
    return len(re.findall("memfd:counterweight", pathlib.Path("/proc/self/maps").read_text()))


def reach(mappings: int) -> None:
    """Waits until so many mappings remain; the server notices an end with a delay.

    Threads do too: objects that one of them holds become garbage when it ends.
    """
    end = time.monotonic() + 150
    while True:
        gc.collect()
        if held() == mappings and (mappings or descriptors() == 0):
            return
        assert time.monotonic() < end, (
            f"{held()} mappings instead of {mappings}, {descriptors()} descriptors"
        )


def descriptors() -> int:
    """Returns the number of descriptors of such memory."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            count += "memfd:counterweight" in os.readlink(f"/proc/self/fd/{name}")
    return count
