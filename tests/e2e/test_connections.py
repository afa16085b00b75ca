"""Limits of one gRPC connection, and peers that freeze without closing theirs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from counterweight_rl import aio
from counterweight_rl.transport import channel
from server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
WATCH = "/grpc.health.v1.Health/Watch"
CHECK = "/grpc.health.v1.Health/Check"


class Http2:
    """A client that sends nothing but the test's bytes."""

    def __init__(self, server: ServerProcess) -> None:
        host, _, port = server.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS)
        self.socket.sendall(PREFACE)
        self.send(SETTINGS)

    def send(self, kind: int, flags: int = 0, payload: bytes = b"") -> None:
        head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + bytes(4)
        self.socket.sendall(head + payload)

    def read(self) -> tuple[int, int, bytes] | None:
        """Returns the next frame: type, flags, payload; None at the connection's end."""
        head = self._read(9)
        if not head:
            return None
        return head[3], head[4], self._read(int.from_bytes(head[:3], "big"))

    def next(self, kind: int, flags: int = 0) -> bytes | None:
        """Returns the payload of the next frame of this kind; None at the connection's end."""
        while frame := self.read():
            if frame[:2] == (kind, flags):
                return frame[2]
        return None

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return b""
            if not part:
                return b""
            data += part
        return data


@contextlib.contextmanager
def http2(server: ServerProcess) -> Iterator[Http2]:
    client = Http2(server)
    with client.socket:
        yield client


@contextlib.contextmanager
def connected(server: ServerProcess) -> Iterator[grpc.Channel]:
    # A connection of its own: grpc's channels share one.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.address, options) as made:
        yield made


def test_a_flood_of_pings_is_refused(server: ServerProcess) -> None:
    with http2(server) as client:
        # The first has no predecessor, two are forgiven, and the next is too many.
        for number in range(8):
            with contextlib.suppress(OSError):
                client.send(PING, 0, struct.pack(">Q", number))
        reason = client.next(GOAWAY)
        assert reason is not None and b"too_many_pings" in reason


def test_a_connection_has_so_many_streams(start_server: StartServer) -> None:
    server = start_server("--max_streams_per_connection=1")
    with connected(server) as made:
        watch = made.unary_stream(WATCH)(b"", timeout=DEADLINE_SECONDS)
        assert next(watch) is not None
        second = made.unary_unary(CHECK).future(b"", timeout=DEADLINE_SECONDS)
        with connected(server) as other:
            other.unary_unary(CHECK)(b"", timeout=DEADLINE_SECONDS)
        assert not second.done()
        watch.cancel()
        assert second.result(timeout=DEADLINE_SECONDS) is not None
    server.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients ping after a second."""
    quick = {
        "grpc.keepalive_time_ms": 1000,
        "grpc.keepalive_timeout_ms": 1000,
        "grpc.http2.ping_timeout_ms": 1000,
    }
    monkeypatch.setattr(
        channel, "_OPTIONS", [(name, quick.get(name, value)) for name, value in channel._OPTIONS]
    )


# Keepalive ends the call before, and nothing else: gRPC's own pings are given up after a minute.
CALL_SECONDS = 50


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_a_server_that_freezes_is_noticed(
    start_server: StartServer, transport: cw.Transport
) -> None:
    server = start_server()
    target = server.address
    with cw.Client(target, transport=transport, retry=False, timeout=CALL_SECONDS) as client:
        batch = padded_batch(64, 512)
        client.correct(method="token_tis", **batch)
        server.freeze()
        with pytest.raises(cw.UnavailableError):
            client.correct(method="token_tis", **batch)
    server.stop()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_freezes_is_noticed_by_asyncio(start_server: StartServer) -> None:
    server = start_server()

    async def call() -> None:
        async with aio.Client(server.address, retry=False, timeout=CALL_SECONDS) as client:
            await client.correct(method="token_tis", **padded_batch())
            server.freeze()
            with pytest.raises(cw.UnavailableError):
                await client.correct(method="token_tis", **padded_batch())

    asyncio.run(call())
    server.stop()
