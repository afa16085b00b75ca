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
from server_process import DEADLINE_SECONDS, ServerProcess, wait_until

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


def test_a_client_that_freezes_is_disconnected(start_server: StartServer) -> None:
    # A busy machine may take a second to answer, and no five.
    server = start_server("--keepalive_interval=1", "--keepalive_timeout=5")
    with http2(server) as client:
        # More than gRPC sends by default without data: the limit is off.
        for _ in range(4):
            ping = client.next(PING)
            assert ping is not None
            client.send(PING, ACK, ping)
        assert client.next(PING) is not None
        # From here the client is frozen: it answers nothing.
        while client.read() is not None:
            pass
    # The client reads the end before the server has counted it.
    wait_until(lambda: server.count("counterweight_connections") == 0)
    server.stop()


def test_a_client_that_lives_is_not(start_server: StartServer) -> None:
    server = start_server("--keepalive_interval=1", "--keepalive_timeout=5")
    with http2(server) as pinged, connected(server) as proper:
        watch = proper.unary_stream(WATCH)(b"", timeout=DEADLINE_SECONDS)
        assert next(watch) is not None
        # The other client's pings are the clock: the server has the same for both. They take longer
        # than a client that does not answer would stay.
        for _ in range(8):
            ping = pinged.next(PING)
            assert ping is not None
            pinged.send(PING, ACK, ping)
        assert server.count("counterweight_connections") == 2
        assert watch.is_active()
        watch.cancel()
    server.stop()


def test_pings_of_clients_are_tolerated(start_server: StartServer) -> None:
    server = start_server("--keepalive_interval=2")
    with http2(server) as client:
        # The server's pings are the clock: two seconds apart. By default gRPC allows three pings
        # of a client without data, each later one only after five minutes.
        for number in range(5):
            ping = client.next(PING)
            assert ping is not None
            client.send(PING, ACK, ping)
            mine = struct.pack(">Q", number)
            client.send(PING, 0, mine)
            assert client.next(PING, ACK) == mine
    server.stop()


def test_a_flood_of_pings_is_not(server: ServerProcess) -> None:
    with http2(server) as client:
        # The first has no predecessor, two are forgiven, and the next is too many.
        for number in range(8):
            with contextlib.suppress(OSError):
                client.send(PING, 0, struct.pack(">Q", number))
        reason = client.next(GOAWAY)
        assert reason is not None and b"too_many_pings" in reason


def test_calls_have_the_grace_of_their_connection(start_server: StartServer) -> None:
    server = start_server("--max_connection_age=1", "--max_connection_age_grace=1")
    with connected(server) as made:
        watch = made.unary_stream(WATCH)(b"", timeout=DEADLINE_SECONDS)
        assert next(watch) is not None
        with pytest.raises(grpc.RpcError) as raised:
            next(watch)  # health does not change; only the connection's end ends the call
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    server.stop()


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


@pytest.mark.parametrize("bytes_allowed", [4096, 65536])
def test_metadata_has_so_many_bytes(start_server: StartServer, bytes_allowed: int) -> None:
    server = start_server(f"--max_metadata_bytes={bytes_allowed}")

    def check(size: int) -> None:
        with connected(server) as made:
            made.unary_unary(CHECK)(
                b"", metadata=[("filler", "x" * size)], timeout=DEADLINE_SECONDS
            )

    check(bytes_allowed // 2)
    with pytest.raises(grpc.RpcError) as raised:
        check(bytes_allowed)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
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
