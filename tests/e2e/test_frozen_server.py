"""A server that stops (swapping, a debugger, a cgroup's freezer): the calls' time holds over shared memory."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import counterweight_rl as cw
import pytest
from counterweight_rl import aio
from server_process import ServerProcess
from transports import LARGE, assert_same

pytestmark = pytest.mark.server_only

BATCH: dict[str, Any] = {"method": "token_tis", **LARGE["wide"]}
TIMEOUT = 2.0
# For a busy machine; two packets, waited for without the deadline, would take 20 s.
AMPLE_SECONDS = 15.0


@pytest.fixture
def server(start_server: Callable[..., ServerProcess]) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as name:  # socket paths must be short
        folder = pathlib.Path(name)
        started = start_server(f"--shared_memory_socket={folder}/m", listen=f"unix:{folder}/s")
        yield started
        started.stop()


@contextlib.contextmanager
def soon() -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < AMPLE_SECONDS


def late(client: cw.Client, **how: Any) -> None:
    with soon(), pytest.raises(cw.DeadlineError):
        client.correct(**BATCH, **how)


@pytest.mark.parametrize("threads", [1, 4])
def test_timeouts_hold_and_the_client_recovers(server: ServerProcess, threads: int) -> None:
    with (
        cw.Client(server.address, timeout=TIMEOUT) as client,
        ThreadPoolExecutor(threads) as pool,
    ):
        expected = client.correct(**BATCH, timeout=60)
        out = {"weights": client.empty(LARGE["wide"]["response_mask"].shape, access="output")}
        server.freeze()
        for how in ({}, {"out": out}):
            for call in [pool.submit(late, client, **how) for _ in range(threads)]:
                call.result()
        with soon(), pytest.raises(cw.DeadlineError):
            client.submit(**BATCH).result()
        with soon():
            client.empty((10, 10))
        server.process.send_signal(signal.SIGCONT)
        assert_same(client.correct(**BATCH, timeout=60), expected)


def test_closing_does_not_wait(server: ServerProcess) -> None:
    client = cw.Client(server.address, timeout=None)
    client.correct(**BATCH)
    kept = [client.empty(1 << 20) for _ in range(3)]
    server.freeze()
    calls = [client.submit(**BATCH) for _ in range(3)]
    threading.Event().wait(0.5)  # lets them begin; any moment is as good
    with soon():
        client.close()
    for call in calls:
        error = call.exception()
        assert isinstance(error, cw.CounterweightError)
    kept.clear()
    server.process.send_signal(signal.SIGCONT)


def test_asyncio(server: ServerProcess) -> None:
    async def main() -> None:
        async with aio.Client(server.address, timeout=TIMEOUT) as client:
            await client.correct(**BATCH, timeout=60)
            server.freeze()
            for _ in range(3):
                with soon(), pytest.raises(cw.DeadlineError):
                    await client.correct(**BATCH)
            with soon(), pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.correct(**BATCH), 0.5)

    asyncio.run(main())
    server.process.send_signal(signal.SIGCONT)
