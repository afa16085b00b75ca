"""Starting, stopping and listening."""

from __future__ import annotations

import collections
import os
import pathlib
import stat
import tempfile
import threading
from collections.abc import Callable

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2_grpc as service_grpc
from generated_stream import stream_frames
from server_process import DEADLINE_SECONDS, ServerProcess, wait_until

pytestmark = pytest.mark.server_only

# grpc.health.v1.HealthCheckResponse with its field 1 (status) set.
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"

StartServer = Callable[..., ServerProcess]


def test_unix_socket(start_server: StartServer) -> None:
    # A socket's path has at most 107 bytes, and pytest's folders are deep.
    with tempfile.TemporaryDirectory(prefix="cw") as folder:
        path = pathlib.Path(folder) / "cw.sock"
        server = start_server(listen=f"unix:{path}")
        assert server.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with cw.Client(server.address) as client:
            assert client.correct(method="token_tis", **padded_batch()).metrics
        server.terminate()
        assert server.wait() == 0
        assert not os.path.lexists(path)


def test_sigterm_with_nothing_to_do(start_server: StartServer) -> None:
    server = start_server()
    with cw.Client(server.address) as client:
        assert client.server_info().version
        server.terminate()
        assert server.wait() == 0
        with pytest.raises(cw.UnavailableError):
            client.correct(method="token_tis", **padded_batch())


def test_health_turns_before_requests_are_refused(start_server: StartServer) -> None:
    server = start_server("--drain_delay=600")
    with (
        cw.Client(server.address) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        # The test waits for every answer of Watch, as bytes.
        health = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE_SECONDS)
        assert next(health) == SERVING
        server.terminate()
        assert next(health) == NOT_SERVING
        assert client.correct(method="token_tis", **padded_batch()).metrics
        assert server.metric("counterweight_ready") == 0
        health.cancel()


def test_draining_finishes_what_was_admitted(start_server: StartServer) -> None:
    """Under load, every call is answered or redirected."""
    server = start_server()
    batch = padded_batch(16, 4096)
    answered = threading.Barrier(5)
    unexpected: list[BaseException] = []

    def work() -> None:
        with cw.Client(server.address) as client:
            try:
                client.correct(method="token_tis", **batch)
                answered.wait(DEADLINE_SECONDS)
                while True:
                    client.correct(method="token_tis", **batch)
            except cw.UnavailableError:
                pass
            except BaseException as error:
                unexpected.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    answered.wait(DEADLINE_SECONDS)
    server.terminate()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert unexpected == []
    assert server.wait() == 0


def test_restarts_cancel_no_call(start_server: StartServer) -> None:
    """Calls without an answer are UNAVAILABLE, which clients try again."""
    server = start_server()
    address = server.address
    request = pb.GetServerInfoRequest()
    ends: collections.Counter[grpc.StatusCode] = collections.Counter()
    failed: list[cw.CounterweightError] = []
    over = threading.Event()

    def ask() -> None:
        """Calls as fast as it can, without retries."""
        # Otherwise all channels share one connection.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(address, options) as channel:
            stub = service_grpc.CorrectionServiceStub(channel)
            while not over.is_set():
                code = grpc.StatusCode.OK
                try:
                    stub.GetServerInfo(request, wait_for_ready=True, timeout=DEADLINE_SECONDS)
                except grpc.RpcError as error:
                    code = error.code()
                ends[code] += 1

    def correct() -> None:
        """Calls with the default retries."""
        # Until the next server listens; on a busy machine five attempts may not suffice.
        patient = cw.RetryPolicy(attempts=None, max_seconds=DEADLINE_SECONDS)
        with cw.Client(address, retry=patient) as client:
            while not over.is_set():
                try:
                    client.correct(method="token_tis", **padded_batch())
                except cw.CounterweightError as error:
                    failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    threads += [threading.Thread(target=correct) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        answered = ends[grpc.StatusCode.OK]
        wait_until(lambda: ends[grpc.StatusCode.OK] > answered + 200)  # noqa: B023
        server.terminate()
        assert server.wait() == 0
        server = start_server(listen=address)
    over.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert set(ends) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, ends
    assert failed == []


def test_draining_loses_no_admitted_stream(start_server: StartServer) -> None:
    """Admitted clients are answered; the others are redirected."""
    server = start_server()
    batch = padded_batch(64, 4096)
    frames = stream_frames(batch)
    answered = threading.Barrier(5)
    ends: list[tuple[bool, grpc.StatusCode | None]] = []

    def stream(stub: service_grpc.CorrectionServiceStub) -> bool:
        """Returns False if the server is shutting down."""
        admitted = False
        try:
            for frame in stub.CorrectStream(iter(frames), timeout=DEADLINE_SECONDS):
                admitted |= frame.HasField("admission")
            ends.append((admitted, None))
        except grpc.RpcError as error:
            ends.append((admitted, error.code()))
            return False
        return True

    def work() -> None:
        with grpc.insecure_channel(server.address) as channel:
            stub = service_grpc.CorrectionServiceStub(channel)
            stream(stub)
            answered.wait(DEADLINE_SECONDS)
            while stream(stub):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    answered.wait(DEADLINE_SECONDS)
    server.terminate()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert server.wait() == 0
    assert [end for end in ends if end[0] and end[1] is not None] == []
    assert sum(code is None for _, code in ends) >= 4
