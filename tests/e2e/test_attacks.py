"""Attacks by processes that are not proper clients: none costs the server, or other clients,
much."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import queue
import re
import resource
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from generated_stream import unary_request
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess

StartServer = Callable[..., ServerProcess]

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("patient")]

SERVICE = "/counterweight.v1.CorrectionService/"
MIB = 1 << 20


def memory(server: ServerProcess, what: str) -> float:
    """Returns ``VmRSS``, resident now, or ``VmHWM``, the peak; in MiB."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def until(condition: Callable[[], bool]) -> bool:
    """Waits; returns whether the condition holds before the deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return true


def field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def is_served(server: ServerProcess) -> bool:
    with cw.Client(server.address) as client:
        return bool(client.correct(method="token_tis", **padded_batch()).metrics)


def call(channel: grpc.Channel, method: str, payload: bytes, gzip: bool = False) -> grpc.RpcError:
    """Returns the error of a unary call."""
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(SERVICE + method)(
            payload,
            timeout=DEADLINE_SECONDS,
            compression=grpc.Compression.Gzip if gzip else None,
        )
    return raised.value


# Repeated empty messages and similar, 8 MiB each: objects of up to 160 bytes for 2 on the wire.
REPEATED = {
    "tensors": b"\x22\x00" * (4 * MIB),
    "destinations": b"\x72\x00" * (4 * MIB),
    "version_spans": b"\x62\x00" * (4 * MIB),
    "outputs": field(6, b"".join(varint(i + 100) for i in range(MIB))),
    "method": field(5, field(2, b"\x12\x00" * (4 * MIB))),  # rules
    "unknown fields": b"\xa0\x06\x00" * (3 * MIB),
    "group_ids": field(10, b"\x01" * (8 * MIB)),
}


@pytest.mark.parametrize("what", REPEATED)
@pytest.mark.parametrize("how", ["unary", "gzip", "header"])
def test_what_repeats_is_bounded_before_it_becomes_objects(
    start_server: StartServer, what: str, how: str
) -> None:
    server = start_server()
    assert is_served(server)
    start = memory(server, "VmHWM")
    with grpc.insecure_channel(server.address) as channel:
        if how == "header":
            stream = channel.stream_stream(SERVICE + "CorrectStream")
            with pytest.raises(grpc.RpcError) as raised:
                list(stream(iter([field(1, REPEATED[what])]), timeout=DEADLINE_SECONDS))
            error = raised.value
        else:
            error = call(channel, "Correct", REPEATED[what], gzip=how == "gzip")
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith(what)
    # The message itself, in gRPC and in the server, and the permitted 20 MiB of objects.
    assert memory(server, "VmHWM") - start < 64
    assert is_served(server)
    server.stop()


def test_a_message_that_ends_in_garbage_is_refused_whole(start_server: StartServer) -> None:
    """The scan in front of protobuf's parser stops at the garbage, which is no end of input."""
    server = start_server()
    label = field(2, b"")
    with grpc.insecure_channel(server.address) as channel:
        error = call(channel, "Correct", label + b"\x00\x00")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "its bytes do not parse" in str(error.details())


def test_a_compressed_chunk_is_not_inflated_beyond_its_limit(start_server: StartServer) -> None:
    server = start_server()
    assert is_served(server)
    start = memory(server, "VmHWM")
    bomb = field(2, field(3, bytes(256 * MIB)))
    with grpc.insecure_channel(
        server.address, options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        stream = channel.stream_stream(SERVICE + "CorrectStream")
        with pytest.raises(grpc.RpcError) as raised:
            list(stream(iter([bomb]), timeout=DEADLINE_SECONDS, compression=grpc.Compression.Gzip))
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert memory(server, "VmHWM") - start < 128
    assert is_served(server)
    server.stop()


class RawConnection:
    """Minimal HTTP/2 of a hostile client."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, b""))

    @staticmethod
    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
        return head + struct.pack(">I", stream) + payload

    def begin(self, method: str, message_bytes: int, sent_bytes: int) -> None:
        """Begins a call with a message that stops after the first bytes."""
        self.socket.sendall(self.headers(1, method))
        data = b"\x00" + struct.pack(">I", message_bytes) + bytes(sent_bytes)
        self.socket.sendall(self.frame(0, 0, 1, data))

    @staticmethod
    def literal(name: str, value: str) -> bytes:
        """Returns a header in HPACK."""

        def text(value: str) -> bytes:
            size = len(value)
            # An integer with a prefix of 7 bits.
            head = bytes([size]) if size < 127 else b"\x7f" + varint(size - 127)
            return head + value.encode()

        return b"\x00" + text(name) + text(value)

    @classmethod
    def headers(
        cls, stream: int, method: str, *metadata: tuple[str, str], is_whole: bool = True
    ) -> bytes:
        """Returns the frame that begins a call; CONTINUATION follows one that is not whole."""

        block = b"".join(
            cls.literal(*pair)
            for pair in (
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                *metadata,
            )
        )
        return cls.frame(1, 4 if is_whole else 0, stream, block)

    def flood(self, frames: Iterator[bytes]) -> bool:
        """Sends all, then a ping; returns whether the server answers it, or ends the connection."""
        self.socket.setblocking(False)
        frames = itertools.chain(frames, [self.frame(6, 0, 0, b"the last")])
        pending = answers = b""
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            pending = pending or next(frames, b"")
            select.select([self.socket], [self.socket] if pending else [], [], 1)
            with contextlib.suppress(BlockingIOError):
                try:
                    if pending:
                        pending = pending[self.socket.send(pending) :]
                    received = self.socket.recv(1 << 16)
                except (ConnectionError, TimeoutError):
                    return False
                if received == b"":
                    return False
                answers = answers[-16:] + received
                if self.frame(6, 1, 0, b"the last") in answers:
                    return True
        raise TimeoutError("neither an answer nor an end of the connection")

    def is_ended(self) -> bool:
        """Waits after a flood; returns whether the server ends the connection."""
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            select.select([self.socket], [], [], 1)
            try:
                if self.socket.recv(1 << 16) == b"":
                    return True
            except BlockingIOError:
                continue
            except ConnectionError:
                return True
        return False

    def reset_calls(self, method: str, count: int) -> bool:
        """Begins calls and resets them; returns whether the server has read all."""
        code = struct.pack(">I", 8)
        return self.flood(
            b"".join(
                self.headers(stream, method) + self.frame(3, 0, stream, code)
                for stream in range(first, first + 400, 2)
            )
            for first in range(1, 2 * count, 400)
        )


def grpc_defences(server: ServerProcess) -> list[str]:
    """Returns the names of what the build has against holes that gRPC 1.83 does not have."""
    (started,) = server.events("started")
    names: list[str] = started["grpc_defences"]
    return names


def test_an_old_grpc_has_the_defences_of_the_page(start_server: StartServer) -> None:
    server = start_server()
    (started,) = server.events("started")
    page = (REPOSITORY / "server/README.md").read_text()
    (text,) = re.findall(r"`grpc_defences`(.*?)\n- ", page, flags=re.S)
    is_old = tuple(map(int, started["grpc"].split(".")[:2])) < (1, 83)
    assert sorted(grpc_defences(server)) == sorted(re.findall(r"`(\w+)`", text) if is_old else [])
    assert len(re.findall(r"`(\w+)`", text)) == 3
    server.stop()


@pytest.mark.parametrize(
    ("name", "value"), [("x-big", "y" * 9000), ("x-bin", "!!!no base64!!!"), ("x-nul", "a\0b")]
)
def test_metadata_of_one_call_leaves_the_others_alone(
    start_server: StartServer, name: str, value: str
) -> None:
    """A proxy's connection has calls of many clients."""
    server = start_server()
    if grpc_defences(server):
        pytest.skip("gRPC 1.51 ends the connection (CVE-2023-32732)")
    request = unary_request(padded_batch())
    request.labels.run = "honest"
    payload = request.SerializeToString()
    message = b"\0" + struct.pack(">I", len(payload)) + payload
    frame, headers = RawConnection.frame, RawConnection.headers
    connection = RawConnection(server.address)
    connection.socket.sendall(
        headers(1, SERVICE + "Correct")
        + frame(0, 0, 1, message[:100])
        + headers(3, SERVICE + "Correct", (name, value))
        + frame(0, 1, 1, message[100:])
    )
    assert until(lambda: server.count('counterweight_drift_batches_total{run="honest"}') == 1)
    server.stop()


@pytest.mark.parametrize("payload", [b"", RawConnection.literal("x-a", "y" * 100) * 100])
def test_continuation_frames_without_end_cost_little(
    start_server: StartServer, payload: bytes
) -> None:
    server = start_server()
    if grpc_defences(server):
        pytest.skip("gRPC 1.51 keeps them all, and other calls wait")
    assert is_served(server)
    start = memory(server, "VmHWM")
    connection = RawConnection(server.address)
    begun = connection.headers(1, SERVICE + "Correct", is_whole=False)
    # 320 MB, or none.
    frames = (connection.frame(9, 0, 1, payload) * 500 for _ in range(60))
    ended = connection.frame(9, 4, 1, b"")
    connection.flood(itertools.chain([begun], frames, [ended]))
    assert memory(server, "VmHWM") - start < 160
    assert is_served(server)
    server.stop()


@pytest.mark.parametrize("method", ["Correct", "CorrectStream"])
def test_a_connection_that_only_resets_calls_costs_little(
    start_server: StartServer, method: str
) -> None:
    server = start_server()
    with cw.Client(server.address) as bystander:
        bystander.correct(method="token_tis", **padded_batch())
        start = memory(server, "VmRSS")
        flood = RawConnection(server.address)
        is_read = flood.reset_calls(SERVICE + method, 100_000)
        # An old gRPC keeps memory of each call while the connection lasts.
        assert flood.is_ended() if grpc_defences(server) else is_read
        # All of them at once are more than a gigabyte in gRPC 1.51.
        assert memory(server, "VmHWM") - start < 512
        # Other connections of the same peer stay.
        assert bystander.correct(method="token_tis", **padded_batch()).metrics
    assert until(lambda: server.metric("counterweight_arriving_requests") == 0)
    server.stop()


def test_an_honest_client_is_served_beside_floods_of_its_own_address(
    start_server: StartServer,
) -> None:
    """Loopback is every program's here, and a mesh's sidecar's: it is not refused."""
    # Two connections of the flood would fill the places.
    server = start_server("--max_requests_in_flight=64", "--max_queued_requests=32")
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            RawConnection(server.address).reset_calls(SERVICE + "Correct", 100_000)

    floods = [threading.Thread(target=flood) for _ in range(2)]
    for each in floods:
        each.start()
    try:
        for _ in range(8):
            with cw.Client(server.address, retry=False) as newcomer:
                assert newcomer.correct(method="token_tis", **padded_batch()).metrics
    finally:
        over.set()
        for each in floods:
            each.join(DEADLINE_SECONDS)
    assert server.metric("counterweight_connections_refused_total") == 0
    server.stop()


def test_an_upload_that_stalls_is_ended(start_server: StartServer) -> None:
    server = start_server("--unary_timeout=1")
    connection = RawConnection(server.address)
    connection.begin(SERVICE + "Correct", 250 * MIB, 10000)
    assert until(lambda: server.metric("counterweight_arriving_requests") == 1)
    assert until(lambda: server.metric("counterweight_arriving_requests") == 0)
    late = 'counterweight_requests_total{code="DEADLINE_EXCEEDED",method="Correct"}'
    assert until(lambda: server.count(late) == 1)
    assert is_served(server)
    connection.socket.close()
    server.stop()


def test_freed_memory_goes_back_to_the_system(start_server: StartServer) -> None:
    server = start_server()
    assert is_served(server)
    start = memory(server, "VmRSS")
    batch = padded_batch(1000, 4000)
    # A message that gRPC assembles from many small pieces, by a client without streams.
    with cw.Client(server.address, transport="unary") as client:
        for _ in range(4):
            client.correct(method="token_tis", **batch)
    assert memory(server, "VmHWM") - start > 100
    assert until(lambda: memory(server, "VmRSS") - start < 100)
    server.stop()


def watch(channel: grpc.Channel, server: ServerProcess) -> object:
    health = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE_SECONDS)
    next(health)
    return health


def reflection(channel: grpc.Channel, server: ServerProcess) -> object:
    requests: queue.Queue[bytes] = queue.Queue()
    requests.put(b"\x3a\x00")  # list_services
    answers = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    )(iter(requests.get, None), timeout=DEADLINE_SECONDS)
    next(answers)
    return answers, requests


def silent_stream(channel: grpc.Channel, server: ServerProcess) -> object:
    requests: queue.Queue[bytes] = queue.Queue()
    stream = channel.stream_stream(SERVICE + "CorrectStream")(iter(requests.get, None))
    assert until(lambda: server.metric("counterweight_arriving_requests") == 1)
    return stream, requests


def stalled_upload(channel: grpc.Channel, server: ServerProcess) -> object:
    connection = RawConnection(server.address)
    connection.begin(SERVICE + "Correct", MIB, 1000)
    assert until(lambda: server.metric("counterweight_arriving_requests") == 1)
    return connection


def stalled_health_check(channel: grpc.Channel, server: ServerProcess) -> object:
    connection = RawConnection(server.address)
    connection.begin("/grpc.health.v1.Health/Check", MIB, 1000)
    return connection


def silent_connection(channel: grpc.Channel, server: ServerProcess) -> object:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)))


@pytest.mark.parametrize(
    "leave_open",
    [watch, reflection, silent_stream, stalled_upload, stalled_health_check, silent_connection],
)
def test_sigterm_ends_the_server_whatever_is_open(
    start_server: StartServer, leave_open: Callable[[grpc.Channel, ServerProcess], object]
) -> None:
    server = start_server("--drain_timeout=1")
    with grpc.insecure_channel(server.address) as channel:
        kept = leave_open(channel, server)
        server.terminate()
        assert server.wait() == 0
        del kept
    assert server.log_lines()[-1]["event"] == "stopped"


def test_a_second_signal_means_now(start_server: StartServer, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s"
    server = start_server("--drain_delay=600", "--drain_timeout=600", listen=f"unix:{path}")
    server.terminate()
    assert server.events("draining")
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert not path.exists()
    assert server.log_lines()[-1]["event"] == "stopped"


def sockets(address: str, count: int) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    for _ in range(count):
        yield socket.create_connection((host, int(port)))


def test_a_full_descriptor_table_does_not_end_the_listener(start_server: StartServer) -> None:
    server = start_server()
    limit = int(server.metric("process_open_fds")) + 40
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    connections = list(sockets(server.address, 2 * limit))
    lost = "counterweight_connections_refused_total"
    assert server.events("accept_failed")
    for connection in connections:
        connection.close()
    assert is_served(server)
    assert server.metric(lost) > 0
    assert server.metric("counterweight_ready") == 1
    server.stop()


def test_the_peer_with_most_connections_gives_way(start_server: StartServer) -> None:
    server = start_server("--max_connections=20")
    connections = list(sockets(server.address, 19))
    assert until(lambda: server.metric("counterweight_connections") == 19)
    connections += list(sockets(server.address, 5))
    assert until(lambda: server.metric("counterweight_connections_refused_total") == 4)
    # Another address of this machine counts as another peer.
    host, _, port = server.address.rpartition(":")
    other = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
    assert until(lambda: server.metric("counterweight_connections") == 20)
    assert other.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") > 0
    for connection in connections:
        connection.close()
    assert until(lambda: server.metric("counterweight_connections") == 1)
    assert is_served(server)
    server.stop()
