"""A server that does not answer the packets of shared memory: the call's time holds."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fake_memory import REGISTER, FakeMemory, Sharing
from sample import BATCH, assert_is_the_answer

import counterweight_rl as cw
from counterweight_rl import aio
from counterweight_rl.shared_memory import registry
from counterweight_rl.shared_memory.region import SUPPORTED, Access
from counterweight_rl.status import StatusCode
from counterweight_rl.transport import router

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")

TIMEOUT = 1.0
# For a busy machine, far below the patience.
AMPLE_SECONDS = 20.0


@pytest.fixture
def frozen(sharing: Sharing, monkeypatch: pytest.MonkeyPatch) -> Sharing:
    """A server that answers calls, with a socket for memory that answers nothing."""
    # Every batch is a large one, and only the call's own time can end a wait.
    monkeypatch.setattr(router, "SMALL_BYTES", 0)
    monkeypatch.setattr(registry, "_PATIENCE_SECONDS", 3600.0)
    sharing[1].freeze()
    return sharing


@contextlib.contextmanager
def soon() -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < AMPLE_SECONDS


def outcome(client: cw.Client, **changes: Any) -> str:
    with soon():
        try:
            client.correct(**BATCH, **changes, request_id="mine")
        except cw.DeadlineError as error:
            late = error
        else:
            return "answered"
    assert (late.code, late.request_id) == (StatusCode.DEADLINE_EXCEEDED, "mine")
    return "late"


def streams(sharing: Sharing) -> int:
    return len(sharing[0].headers)


def wait_for_packet(memory: FakeMemory, count: int = 1) -> None:
    end = time.monotonic() + AMPLE_SECONDS
    while len(memory.packets) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_deadline_ends_the_wait_for_a_packet(frozen: Sharing, threads: int) -> None:
    server, memory = frozen
    with cw.Client(server.target, timeout=TIMEOUT) as client, ThreadPoolExecutor() as pool:
        ended = [pool.submit(outcome, client) for _ in range(threads)]
        assert "late" in [each.result() for each in ended]
        # Others have another way meanwhile. A busy machine may miss the moment.
        assert any(outcome(client) == "answered" for _ in range(20))
        assert streams(frozen) > 0
    memory.thaw()
    assert memory.connections <= 1


def test_a_patient_call_does_not_hold_an_impatient_one(frozen: Sharing) -> None:
    server, memory = frozen
    client = cw.Client(server.target, timeout=3600)
    with ThreadPoolExecutor() as pool:
        patient = pool.submit(client.correct, **BATCH)
        end = time.monotonic() + AMPLE_SECONDS
        registers = client._connection.router._pool  # type: ignore[union-attr]
        while registers is None or registers._registry._control is None:
            assert time.monotonic() < end
            registers = client._connection.router._pool  # type: ignore[union-attr]
        assert outcome(client, timeout=TIMEOUT) == "late"
        client.close()
        assert isinstance(patient.exception(), cw.CounterweightError)
    memory.thaw()


def test_what_comes_late_is_given_back(frozen: Sharing) -> None:
    server, memory = frozen
    with cw.Client(server.target, timeout=60) as client:
        assert outcome(client, timeout=TIMEOUT) == "late"
        memory.thaw()
        wait_for_packet(memory)
        end = time.monotonic() + AMPLE_SECONDS
        # Shared memory is used again as soon as the answer is there.
        while not server.requests or not server.requests[-1].tensors[0].HasField("shared_memory"):
            assert time.monotonic() < end
            assert_is_the_answer(client.correct(**BATCH))
        used = {tensor.shared_memory.handle for tensor in server.requests[-1].tensors}
        used |= {each.shared_memory.handle for each in server.requests[-1].destinations}
        while set(memory.regions) != used:
            assert time.monotonic() < end
            assert_is_the_answer(client.correct(**BATCH))
        assert memory.connections == 1


@pytest.mark.parametrize("timeout", [60, None])
def test_a_server_beyond_patience_is_given_up(
    frozen: Sharing, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    """The batch takes another way, and the next one does at once."""
    monkeypatch.setattr(registry, "_PATIENCE_SECONDS", 0.05)
    server, memory = frozen
    with cw.Client(server.target, timeout=timeout) as client:
        for _ in range(3):
            assert_is_the_answer(client.correct(**BATCH))
    assert streams(frozen) == 3
    with (
        cw.Client(server.target, timeout=timeout, transport="shared_memory") as client,
        pytest.raises(cw.UnavailableError, match="not possible now") as caught,
    ):
        client.correct(**BATCH)
    assert caught.value.code is StatusCode.UNAVAILABLE
    memory.thaw()


def test_the_library_answers_a_client_that_insists(
    frozen: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_PATIENCE_SECONDS", 0.05)
    server, memory = frozen
    policy = cw.RetryPolicy(attempts=2, seed=1)
    with cw.Client(
        server.target, transport="shared_memory", retry=policy, on_unavailable="identity"
    ) as client:
        assert client.correct(**BATCH).backend == "identity"
        assert client.fallbacks == {"identity": 1}

    async def main() -> None:
        async with aio.Client(
            server.target, transport="shared_memory", retry=policy, on_unavailable="identity"
        ) as client:
            assert (await client.correct(**BATCH)).backend == "identity"

    asyncio.run(main())
    memory.thaw()


@pytest.mark.parametrize("submits", [False, True])
def test_closing_ends_a_wait_and_does_not_wait(frozen: Sharing, submits: bool) -> None:
    server, memory = frozen
    waiting = threading.Event()
    with ThreadPoolExecutor() as pool:
        client = cw.Client(server.target, timeout=None)
        begin = server.infos
        if submits:
            call = client.submit(**BATCH, progress=lambda *_: waiting.set())
        else:
            call = pool.submit(client.correct, **BATCH)  # type: ignore[arg-type]
        end = time.monotonic() + AMPLE_SECONDS
        while server.infos == begin or client._connection.router._pool is None:  # type: ignore[union-attr]
            assert time.monotonic() < end
            time.sleep(0.01)
        with soon():
            client.close()
            error = call.exception()
    assert isinstance(error, cw.CounterweightError)
    assert error.code is StatusCode.CANCELLED
    assert streams(frozen) == 0
    memory.thaw()


def test_arrays_are_made_and_freed_beside_a_wait(frozen: Sharing) -> None:
    server, memory = frozen
    with cw.Client(server.target, timeout=60) as client, ThreadPoolExecutor() as pool:
        call = pool.submit(outcome, client, timeout=2 * TIMEOUT)
        while not call.done():
            with soon():
                array = client.empty((3, 5))
                array[:] = 1
                del array
                gc.collect()
        assert call.result() == "late"
    memory.thaw()


def test_memory_that_is_registered_goes_on(sharing: Sharing, monkeypatch: Any) -> None:
    monkeypatch.setattr(router, "SMALL_BYTES", 0)
    monkeypatch.setattr(registry, "_PATIENCE_SECONDS", 3600.0)
    server, memory = sharing
    with cw.Client(server.target, timeout=60) as client, ThreadPoolExecutor() as threads:
        pool = client._connection.pool_for_arrays()
        assert pool is not None
        known = pool.take(Access.READ, 10)
        handle = pool.handle(known)
        memory.freeze()
        late = threads.submit(outcome, client, timeout=2 * TIMEOUT)
        while not late.done():
            with soon():
                assert pool.handle(known) == handle
        assert late.result() == "late"
        pool.give_back(known)
    assert [operation for operation, _, _ in memory.packets] == [REGISTER]
    memory.thaw()


def test_asyncio(frozen: Sharing) -> None:
    server, memory = frozen

    async def main() -> None:
        async with aio.Client(server.target, timeout=60) as client:
            with soon(), pytest.raises(cw.DeadlineError) as caught:
                await client.correct(**BATCH, timeout=TIMEOUT, request_id="mine")
            assert caught.value.request_id == "mine"
            for _ in range(20):
                with soon(), contextlib.suppress(cw.DeadlineError):
                    assert_is_the_answer(await client.correct(**BATCH, timeout=TIMEOUT))
                    break
            assert streams(frozen) > 0
        async with aio.Client(server.target, timeout=None) as client:
            ticks = 0
            call = asyncio.ensure_future(client.correct(**BATCH))
            with soon():
                for _ in range(50):
                    await asyncio.sleep(0.01)
                    ticks += 1
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            assert ticks == 50
            call = asyncio.ensure_future(client.correct(**BATCH))
            await asyncio.sleep(0.05)
            with soon():
                await client.close()
                with pytest.raises(cw.CounterweightError) as closed:
                    await call
            assert closed.value.code is StatusCode.CANCELLED

    asyncio.run(main())
    memory.thaw()


def test_threads_that_are_busy_do_not_hold_a_call(frozen: Sharing) -> None:
    """asyncio has a few threads for all, and calls without a limit may keep them."""
    server, memory = frozen

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with aio.Client(server.target, timeout=None) as client:
            first = asyncio.ensure_future(client.correct(**BATCH))
            while not client._connection._router.capabilities:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            with soon(), pytest.raises(cw.DeadlineError):
                await client.correct(**BATCH, timeout=TIMEOUT)
            await client.close()
            with pytest.raises(cw.CounterweightError):
                await first

    asyncio.run(main())
    memory.thaw()
