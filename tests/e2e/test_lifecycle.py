"""Starting, stopping and listening."""

from __future__ import annotations

import os
import pathlib
import stat
import tempfile
import threading
from collections.abc import Callable

import counterweight as cw
import grpc
import pytest
from batches import padded_batch
from server_process import DEADLINE_SECONDS, ServerProcess

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
        # Every answer of Watch is waited for; bytes are passed as they are.
        health = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE_SECONDS)
        assert next(health) == SERVING
        server.terminate()
        assert next(health) == NOT_SERVING
        assert client.correct(method="token_tis", **padded_batch()).metrics
        assert server.metric("counterweight_ready") == 0
        health.cancel()


def test_draining_finishes_what_was_admitted(start_server: StartServer) -> None:
    """Under load, every call is answered or told to go elsewhere."""
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
