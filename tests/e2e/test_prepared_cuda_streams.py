"""Plans for CUDA tensors of torch run in the caller's stream, each on its device: on the fake runtime.

The runtime runs streams late, so that a call in another stream shows as wrong numbers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl import aio
from counterweight_rl.local.plan import Plan
from device_arrays import Device
from prepared import BATCH, by_plan
from server_process import DEADLINE_SECONDS
from transports import LOSS

torch = pytest.importorskip("torch")

from prepared_cuda import DIRECT, HOST, assert_numbers, on_cpu, received  # noqa: E402


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Memory, whether places are known, and stream of each run of a plan."""
    found: list[tuple[int, ...]] = []
    run = Plan.run

    def recorded(plan: Plan, *arguments: Any) -> int:
        found.append(arguments[-1])
        return run(plan, *arguments)

    monkeypatch.setattr(Plan, "run", recorded)
    return found


def test_the_current_stream_of_each_call(
    device: Device, local_cuda: cw.Client, tensors: Any, places: list[tuple[int, ...]]
) -> None:
    for seed in range(9):
        device.set_seed(seed)
        tensors.stream = device.stream()
        batch = padded_batch(7, 80, seed=seed)
        result = local_cuda.correct(**tensors.send_batch(batch), method=LOSS, outputs=DIRECT)
        device.overwrite(tensors.stream)
        assert by_plan(result) == (seed >= 2)
        assert_numbers(received(tensors, result), on_cpu(method=LOSS, outputs=DIRECT, **batch))
        if seed >= 2:
            assert places[-1] == (1, 1, tensors.stream)
    assert tensors.synchronized == 0


def test_submitted_tensors_are_copied_in_the_callers_stream(
    device: Device, local_cuda: cw.Client, tensors: Any, places: list[tuple[int, ...]]
) -> None:
    for _ in range(2):
        local_cuda.correct(**tensors.send_batch(BATCH), method=LOSS, outputs=DIRECT)
    for seed in range(1, 7):
        device.set_seed(seed)
        tensors.stream = device.stream()
        batch = padded_batch(7, 80, seed=seed)
        sent = tensors.send_batch(batch)
        future = local_cuda.submit(**sent, method=LOSS, outputs=DIRECT)
        device.overwrite(tensors.stream)
        result = future.result(DEADLINE_SECONDS)
        assert by_plan(result)
        assert places[-1] == (1, 1, tensors.stream)
        assert_numbers(received(tensors, result), on_cpu(method=LOSS, outputs=DIRECT, **batch))
    assert tensors.synchronized == 6


def test_asyncio_runs_in_the_callers_stream(
    device: Device, tensors: Any, places: list[tuple[int, ...]]
) -> None:
    async def calls() -> None:
        async with aio.Client("local:cuda") as client:
            for seed in range(9):
                device.set_seed(seed)
                tensors.stream = device.stream()
                batch = padded_batch(7, 80, seed=seed)
                sent = tensors.send_batch(batch)
                result = await client.correct(**sent, method=LOSS, outputs=DIRECT)
                device.overwrite(tensors.stream)
                assert by_plan(result) == (seed >= 2)
                found = received(tensors, result)
                assert_numbers(found, on_cpu(method=LOSS, outputs=DIRECT, **batch))
                if seed >= 2:
                    assert places[-1] == (1, 1, tensors.stream)
            wrong = tensors.send_batch({**BATCH, "old_log_probs": BATCH["old_log_probs"] * np.nan})
            with pytest.raises(cw.InvalidRequestError, match="old_log_probs"):
                await client.correct(**wrong, method=LOSS, outputs=DIRECT)

    asyncio.run(calls())
    device.set_seed(0)


def test_plans_of_devices_and_of_the_host_are_their_own(
    local_cuda: cw.Client, tensors: Any, places: list[tuple[int, ...]]
) -> None:
    elsewhere = {name: tensors.send(array, 1) for name, array in BATCH.items()}
    sent = tensors.send_batch(BATCH)
    expected = on_cpu(method=LOSS, **BATCH)
    calls = local_cuda._connection._calls  # type: ignore[union-attr]
    # Even batches without tokens, which the library would answer.
    assert calls.known({"method": LOSS, **elsewhere}) is None
    keys = {calls.known({"method": LOSS, **batch}).key for batch in (sent, HOST)}
    assert len(keys) == 2
    for _ in range(4):
        with pytest.raises(cw.InvalidRequestError, match="lies on another CUDA device"):
            local_cuda.correct(method=LOSS, **elsewhere)
        there = local_cuda.correct(method=LOSS, **sent)
        here = local_cuda.correct(method=LOSS, **HOST)
        assert here.weights.is_cpu and tensors.index_of(here.weights) is None
        assert_numbers(received(tensors, there), expected)
        assert_numbers(here, expected)
    assert by_plan(there) and by_plan(here)
    assert set(places) == {(0, 0, 0), (1, 1, tensors.stream)}


def test_a_client_of_another_device(tensors: Any, places: list[tuple[int, ...]]) -> None:
    sent = {name: tensors.send(array, 1) for name, array in BATCH.items()}
    out = {"weights": tensors.send(torch.zeros(6, 37), 1)}
    call = {"method": "token_tis", "outputs": ("weights",), "out": out}
    tensors.stream = tensors.device.stream(1)
    with cw.Client("local:cuda?device=1") as client:
        for _ in range(3):
            result = client.correct(**sent, **call)
    assert by_plan(result)
    found = tensors.receive(result.weights)
    tensors.device.synchronize(tensors.stream)
    expected = on_cpu(method="token_tis", outputs=("weights",), **BATCH)
    np.testing.assert_array_equal(found.numpy(), expected.weights)


def test_no_plan_after_close(tensors: Any, places: list[tuple[int, ...]]) -> None:
    sent = tensors.send_batch(BATCH)
    with cw.Client("local:cuda") as client:
        for _ in range(3):
            client.correct(method=LOSS, **sent)
    runs = len(places)
    assert runs == 1
    with pytest.raises(cw.CounterweightError, match="closed") as caught:
        client.correct(method=LOSS, **sent)
    assert caught.value.code.name == "CANCELLED"
    assert len(places) == runs


def test_a_local_client_of_the_cpu_takes_them_as_before(
    tensors: Any, places: list[tuple[int, ...]]
) -> None:
    with cw.Client("local:?threads=1") as client:
        for _ in range(3):
            with tensors.torch_computes():
                result = client.correct(method="token_tis", **tensors.send_batch(BATCH))
            assert not by_plan(result)
    assert not places
