"""How long device memory is kept and registered, on a fake device."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from fake_cuda import FakeCuda
from fake_memory import Sharing
from fake_server import Held, bad_request, failing, in_turn
from sample import ALL, BATCH, answer, assert_is_the_answer, on

import counterweight_rl as cw
from counterweight_rl.shared_memory import quarantine, registry
from counterweight_rl.shared_memory.region import SUPPORTED

pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")


def test_outputs_are_kept_until_the_server_is_done(computing: Sharing, device: FakeCuda) -> None:
    """torch would reuse their memory, and the server would write there."""
    server, memory = computing
    memory.busy = True
    server.handler = failing(grpc.StatusCode.DEADLINE_EXCEEDED, "given up")
    with cw.Client(server.target, transport="shared_memory", timeout=300) as client:
        batch = on(device)
        with pytest.raises(cw.DeadlineError):
            client.correct(**batch, outputs=("weights",))
        batch.clear()
        gc.collect()
        assert device.alive() == 1
        memory.busy = False
        server.handler = memory.serve(answer)
        end = time.monotonic() + 150
        while device.alive():  # a call requests the state, and does not wait for the answer
            assert time.monotonic() < end
            client.correct(**BATCH)
            gc.collect()


def test_a_server_that_does_not_answer_keeps_outputs_and_no_one_waits(
    computing: Sharing, device: FakeCuda
) -> None:
    server, memory = computing
    held = Held()
    server.handler = held
    client = cw.Client(server.target, transport="shared_memory", timeout=3600)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(client.correct, **on(device), outputs=("weights",), timeout=8)
        assert held.arrived.acquire(timeout=150)
        memory.freeze()
        begin = time.monotonic()
        with pytest.raises(cw.DeadlineError):
            call.result()
        client.close()
        # One packet alone would be waited for as long.
        assert time.monotonic() - begin < 8 + registry._PATIENCE_SECONDS
    del call
    gc.collect()
    assert device.alive() == 1
    held.release()
    memory.thaw()
    end = time.monotonic() + 150
    while device.alive():
        assert time.monotonic() < end
        time.sleep(0.01)
        gc.collect()


def test_outputs_of_a_connection_that_was_given_up_are_lost(
    computing: Sharing, device: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call's packet had no answer, so no call can learn when the server has finished."""
    server, memory = computing
    given_up: list[object] = []
    monkeypatch.setattr(quarantine, "_given_up", given_up)
    held = Held()
    server.handler = held
    with (
        cw.Client(server.target, transport="shared_memory", timeout=60) as client,
        ThreadPoolExecutor() as threads,
    ):
        call = threads.submit(client.correct, **on(device), outputs=("weights",), timeout=15)
        assert held.arrived.acquire(timeout=150)
        memory.freeze()
        monkeypatch.setattr(registry, "_PATIENCE_SECONDS", 0.05)
        with pytest.raises(cw.UnavailableError):
            client.correct(**BATCH)
        with pytest.raises(cw.DeadlineError):
            call.result()
        assert len(given_up) == 1
        held.release()
        memory.thaw()


def test_an_overloaded_server_gets_back_what_no_call_uses(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """Another call's memory stays registered: otherwise its outputs could not be kept if it is
    given up."""
    server, memory = computing
    held, inner = Held(), memory.serve(answer)
    full = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    server.handler = in_turn(
        inner, lambda request, context: (held(request, context), inner(request, context))[1], full
    )
    idle, used, refused = on(device), on(device), on(device)
    sharer.correct(**idle, outputs=ALL)
    gc.collect()
    with ThreadPoolExecutor() as threads:
        call = threads.submit(sharer.correct, **used, outputs=ALL)
        assert held.arrived.acquire(timeout=150)
        with pytest.raises(cw.OverloadedError):
            sharer.correct(**refused, outputs=ALL)
        held.release()
        assert_is_the_answer(call.result(30))
    server.handler = inner
    sharer.correct(**BATCH)  # released memory is gone when memory is taken after it
    of_idle, of_used, of_refused, _ = (
        {tensor.shared_memory.handle for tensor in request.tensors} for request in server.requests
    )
    assert len(of_used) == 3
    assert of_used <= set(memory.regions)
    assert (of_idle | of_refused).isdisjoint(memory.regions)


def test_outputs_of_refused_requests_are_not_kept(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    server, memory = computing
    memory.busy = True
    server.handler = bad_request("labels.run")
    with pytest.raises(cw.InvalidRequestError):
        sharer.correct(**on(device))
    gc.collect()
    assert device.alive() == 0


def test_memory_of_a_server_that_never_ends_is_lost(
    computing: Sharing, device: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, memory = computing
    monkeypatch.setattr(quarantine, "_SECONDS", 0.05)
    given_up: list[object] = []
    monkeypatch.setattr(quarantine, "_given_up", given_up)
    memory.busy = True
    server.handler = failing(grpc.StatusCode.DEADLINE_EXCEEDED, "given up")
    with (
        cw.Client(server.target, transport="shared_memory", timeout=300) as client,
        pytest.raises(cw.DeadlineError),
    ):
        client.correct(**on(device), outputs=("weights",))
    end = time.monotonic() + 150
    while not given_up:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert len(given_up) == 1
    gc.collect()
    assert device.alive() == 1
    given_up.clear()
    gc.collect()
    assert device.alive() == 0


def test_nothing_is_left(computing: Sharing, device: FakeCuda) -> None:
    server, memory = computing
    with cw.Client(server.target, transport="shared_memory", timeout=300) as client:
        for _ in range(20):
            assert_is_the_answer(client.correct(**on(device), outputs=ALL))
    gc.collect()
    assert device.alive() == 0
    end = time.monotonic() + 150
    while memory.regions:
        assert time.monotonic() < end
        time.sleep(0.001)
