"""The life of plans: how many, how long, in threads, children, tasks and futures."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import pathlib
import resource
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl.local import prepared_calls
from prepared import BATCH, WRONG, by_plan, thrice
from server_process import DEADLINE_SECONDS
from transports import LOSS, assert_same


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture
def local() -> Iterator[cw.Client]:
    with cw.Client("local:?threads=1") as connected:
        yield connected


def test_plans_are_bounded(local: cw.Client) -> None:
    for seed in range(3 * prepared_calls._MOST_PLANS):
        for _ in range(2):
            local.correct(method="token_tis", seed=seed, **padded_batch(2, 3))
    prepared = local._connection._calls._engine.prepared  # type: ignore[union-attr]
    assert prepared is not None
    assert len(prepared._plans) == prepared_calls._MOST_PLANS


def _resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_plans_that_leave_give_their_memory_back(local: cw.Client) -> None:
    batch = padded_batch(2, 3)

    def prepare(first: int, count: int) -> None:
        for seed in range(first, first + count):
            for _ in range(2):
                local.correct(method="token_tis", seed=seed, **batch)

    prepare(0, 500)
    before = _resident_bytes()
    prepare(500, 3000)
    gc.collect()
    # A plan has some 15 KB.
    assert _resident_bytes() - before < 8 << 20


def test_threads_prepare_and_run_at_once() -> None:
    batches = [padded_batch(5, 30 + seed, seed=seed) for seed in range(8)]
    with cw.Client("local:?threads=1") as fresh:
        expected = [fresh.correct(method="token_tis", seed=i, **b) for i, b in enumerate(batches)]
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for i in range(200):
                at = (i + offset) % len(batches)
                assert_same(local.correct(method="token_tis", seed=at, **batches[at]), expected[at])
        except BaseException as error:
            failures.append(error)

    with cw.Client("local:?threads=2") as local:
        workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    """A batch of some tenths of a second."""
    rows = padded_batch(100, 4000)
    return {name: np.tile(array, (20, 1)) for name, array in rows.items()}


def prepared(local: cw.Client, **settings: Any) -> None:
    """Makes a plan of small batches, however slow the machine is at the moment."""
    result = None
    while result is None or not by_plan(result):
        with contextlib.suppress(cw.DeadlineError):
            result = local.correct(method=LOSS, **settings, **BATCH)


def test_a_run_ends_at_its_deadline(local: cw.Client, large: dict[str, Any]) -> None:
    prepared(local, timeout=0.02)
    with pytest.raises(cw.DeadlineError):
        local.correct(method=LOSS, timeout=0.02, **large)
    assert by_plan(local.correct(method=LOSS, timeout=0.02, **BATCH))


def test_close_ends_a_run(local: cw.Client, large: dict[str, Any]) -> None:
    prepared(local)
    held = local.correct(method=LOSS, **BATCH)
    calls = local._connection._calls  # type: ignore[union-attr]
    with futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(local.correct, method=LOSS, **large)
        while not calls._stops and not running.done():
            pass
        local.close()
        with pytest.raises(cw.CounterweightError, match="closed"):
            running.result()
    assert held.metrics["tokens"] > 0, "read after the client's end"


def _threads() -> int:
    return len(list(pathlib.Path("/proc/self/task").iterdir()))


def _use_threads(local: cw.Client) -> None:
    for _ in range(4):
        result = local.correct(method="token_tis", **padded_batch(64, 500))
    assert by_plan(result)


def _two_end(before: int) -> bool:
    """Whether two of that many threads end."""
    end = time.monotonic() + DEADLINE_SECONDS
    while _threads() > before - 2 and time.monotonic() < end:
        pass
    return _threads() <= before - 2


def test_close_ends_the_threads_that_runs_used() -> None:
    with cw.Client("local:?threads=3") as local:
        _use_threads(local)
        used = _threads()
    assert _two_end(used)


def test_the_last_run_of_a_closed_client_ends_them(large: dict[str, Any]) -> None:
    local = cw.Client("local:?threads=3")
    _use_threads(local)
    used = _threads()
    calls = local._connection._calls  # type: ignore[union-attr]
    with futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(local.correct, method=LOSS, **large)
        while not calls._stops and not running.done():
            pass
        local.close()
        with pytest.raises(cw.CounterweightError, match="closed"):
            running.result()
    assert _two_end(used)


def test_a_plan_leaves_with_its_client() -> None:
    local = cw.Client("local:?threads=1")
    for _ in range(3):
        result = local.correct(method="token_tis", **BATCH)
    plan = weakref.ref(vars(result)["_late"]._plan)
    local.close()
    del local
    gc.collect()
    assert plan() is not None, "the result needs it"
    assert result.metrics["tokens"] > 0
    del result
    gc.collect()
    assert plan() is None


def _in_child(client: cw.Client, answers: Any) -> None:
    result = client.correct(method="token_tis", **BATCH)
    answers.put((by_plan(result), result.weights, result.metrics["kl"]))


def test_a_forked_child_uses_the_plans(local: cw.Client) -> None:
    expected = thrice(local, method="token_tis", **BATCH)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(local, answers))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    planned, weights, kl = answers.get()
    assert planned
    np.testing.assert_array_equal(weights, expected.weights)
    assert kl == expected.metrics["kl"]


def test_aio_and_submit() -> None:
    async def ask() -> list[cw.Result[Any]]:
        async with cw.aio.Client("local:?threads=1") as client:
            return [await client.correct(method="token_tis", **BATCH) for _ in range(3)]

    first, _, third = asyncio.run(ask())
    assert by_plan(third)
    assert_same(third, first)
    with cw.Client("local:?threads=1") as local:
        answers = [local.submit(method="token_tis", **BATCH).result() for _ in range(2)]
        answers += [local.correct(method="token_tis", **BATCH) for _ in range(2)]
        changed = {name: array.copy() for name, array in BATCH.items()}
        pending = [local.submit(method="token_tis", **changed) for _ in range(3)]
        for array in changed.values():
            array.fill(0)
        answers += [future.result() for future in pending]
        assert by_plan(answers[-1])
        with pytest.raises(cw.InvalidRequestError, match="old_log_probs"):
            local.submit(method="token_tis", **{**BATCH, **WRONG["nan"]}).result()
    for answer in answers:
        assert_same(answer, first)


def test_prepare_says_it(local: cw.Client) -> None:
    method = cw.Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0})
    prepared = local.prepare(method=method, outputs=["weights"], run="a", metrics=False)
    answers = [prepared.correct(**BATCH) for _ in range(3)]
    assert by_plan(answers[2])
    expected = local.correct(method=method, outputs=["weights"], run="a", metrics=False, **BATCH)
    assert_same(answers[2], expected)
    assert "verl" in repr(prepared)
    with pytest.raises(TypeError, match="method was given to prepare"):
        prepared.correct(method="token_tis", **BATCH)
    with pytest.raises(TypeError, match="unexpected keyword argument 'old_logprobs'"):
        prepared.correct(old_logprobs=1, **BATCH)
    with pytest.raises(TypeError, match="missing the keyword argument 'response_mask'"):
        prepared.correct()

    async def ask() -> cw.Result[Any]:
        async with cw.aio.Client("local:?threads=1") as client:
            return await client.prepare(method=method, outputs=["weights"]).correct(**BATCH)

    assert asyncio.run(ask()).weights is not None


@pytest.mark.parametrize(
    ("fixed", "error"),
    [
        ({}, "missing the keyword argument 'method'"),
        ({"method": "token_tis", "out": {}}, "unexpected keyword argument 'out'"),
        ({"method": 3}, "method must be a preset's name"),
        ({"method": "token_tis", "outputs": "weights"}, "outputs must be a sequence"),
        ({"method": "token_tis", "outputs": ["weight"]}, "did you mean"),
        ({"method": cw.Preset("token_tis", upper="2")}, "must be a number"),
    ],
    ids=str,
)
def test_prepare_refuses(local: cw.Client, fixed: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        local.prepare(**fixed)
