"""A server that stops and returns at the same address while counterweight_rl.compat calls it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl import compat
from counterweight_rl.transport import retry
from server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]

# One travels as one message; the other, of several chunks, by stream or shared memory.
SMALL, LARGE = padded_batch(4, 64), padded_batch(128, 4096)


class Address:
    """Starts servers in succession, all at the address of the first one."""

    def __init__(self, start: StartServer, listen: str, *flags: str) -> None:
        self._start = start
        self._listen = listen
        self._flags = flags

    def start(self) -> ServerProcess:
        server = self._start(*self._flags, listen=self._listen)
        self._listen = server.address
        return server


@pytest.fixture(params=["tcp", "unix", "shared_memory"])
def address(request: pytest.FixtureRequest, start_server: StartServer) -> Iterator[Address]:
    # Paths of sockets are short, and pytest's folders are deep.
    with tempfile.TemporaryDirectory(prefix="cw") as folder:
        listen = "127.0.0.1:0" if request.param == "tcp" else f"unix:{folder}/socket"
        shares = request.param == "shared_memory"
        flags = [f"--shared_memory_socket={folder}/memory"] if shares else []
        yield Address(start_server, listen, *flags)


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when an attempt has failed and a call is about to pause."""
    event = threading.Event()
    pause = retry.Attempts.pause

    def noting(self: retry.Attempts, error: cw.CounterweightError) -> float | None:
        seconds = pause(self, error)
        event.set()
        return seconds

    monkeypatch.setattr(retry.Attempts, "pause", noting)
    return event


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TARGET", "RUN", "TIMEOUT", "RETRY_SECONDS", "NON_FINITE"):
        monkeypatch.delenv(f"COUNTERWEIGHT_{name}", raising=False)
    yield
    compat.client().close()
    compat.use()


def correct(batch: dict[str, Any], **arguments: Any) -> cw.Result[Any]:
    return compat.client().correct(method="token_tis", **batch, **arguments)


def check(result: cw.Result[Any], expected: cw.Result[Any]) -> None:
    np.testing.assert_array_equal(result.weights, expected.weights)
    np.testing.assert_array_equal(result.keep_mask, expected.keep_mask)
    assert result.metrics == expected.metrics


@pytest.mark.parametrize("batch", [SMALL, LARGE], ids=["small", "large"])
def test_a_server_that_is_away_when_a_call_begins(
    address: Address, failed: threading.Event, batch: dict[str, Any]
) -> None:
    server = address.start()
    compat.use(target=server.address)
    expected = correct(batch)
    server.stop()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(correct, batch)
        assert failed.wait(DEADLINE_SECONDS)
        assert not call.done()
        address.start()
        check(call.result(DEADLINE_SECONDS), expected)
    check(correct(batch), expected)


@pytest.mark.parametrize("address", ["tcp", "unix"], indirect=True)
def test_a_server_that_dies_in_the_midst_of_a_stream(
    address: Address, failed: threading.Event
) -> None:
    server = address.start()
    compat.use(target=server.address)
    expected = correct(LARGE)

    killed = threading.Event()

    def kill(num_bytes: int, total: int) -> None:
        if 0 < num_bytes < total and not killed.is_set():
            server.stop()
            killed.set()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(correct, LARGE, progress=kill)
        assert killed.wait(DEADLINE_SECONDS)
        assert failed.wait(DEADLINE_SECONDS)
        assert not call.done()
        address.start()
        check(call.result(DEADLINE_SECONDS), expected)


def test_a_server_that_stays_away_ends_the_call(start_server: StartServer) -> None:
    server = start_server()
    server.stop()
    compat.use(target=server.address, retry_seconds=0.5)
    with pytest.raises(cw.UnavailableError):
        correct(SMALL)
