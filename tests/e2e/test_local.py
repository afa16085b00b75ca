"""The target ``local:``: the server's answers, without a server."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl.local import library
from goldens import BLAMED_FIELDS, GOLDENS, SAMPLE, correct
from transports import LARGE, LOSS, SMALL, assert_same


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture(scope="module")
def local() -> Iterator[cw.Client]:
    with cw.Client("local:") as connected:
        yield connected


@pytest.mark.parametrize("name", [n for n in GOLDENS if n not in BLAMED_FIELDS][::SAMPLE])
def test_goldens_are_the_servers_bytes(client: cw.Client, local: cw.Client, name: str) -> None:
    assert_same(correct(local, GOLDENS[name]), correct(client, GOLDENS[name]))


@pytest.mark.parametrize("name", [*BLAMED_FIELDS][::SAMPLE])
def test_errors_are_the_servers(client: cw.Client, local: cw.Client, name: str) -> None:
    raised = []
    for each in (local, client):
        with pytest.raises(cw.InvalidRequestError) as caught:
            correct(each, GOLDENS[name])
        raised.append(caught.value)
    assert raised[0].violations == raised[1].violations
    assert str(raised[0]) == str(raised[1])


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_are_the_servers_bytes(client: cw.Client, name: str, threads: int) -> None:
    batch = {**SMALL, **LARGE}[name]
    outputs = ["weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient"]
    with cw.Client(f"local:?threads={threads}") as local:
        answer = local.correct(method=LOSS, outputs=outputs, **batch)
    assert_same(answer, client.correct(method=LOSS, outputs=outputs, **batch))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 1e300, -0.0], ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_numbers_of_blocks_are_the_servers(
    client: cw.Client, local: cw.Client, number: float, nested: bool
) -> None:
    """Also those that JSON lacks, in which the library gets its requests."""
    block: dict[str, Any] = {"rollout_is": "token", "rollout_is_threshold": number}
    if nested:
        block["rollout_is_threshold"] = {"a": [number, 2.0], "$numberDouble": number}
    answers = []
    for each in (local, client):
        try:
            answer = each.correct(**SMALL["padded"], method=cw.Dialect("verl", block))
        except cw.InvalidRequestError as error:
            answers.append((str(error), error.violations))
        else:
            answers.append((answer.weights.tobytes(), sorted(answer.metrics.items())))
    assert repr(answers[0]) == repr(answers[1])
    assert nested or (number in (math.inf, 1e300)) == isinstance(answers[0][0], bytes)


def test_tables_are_the_servers(client: cw.Client, local: cw.Client) -> None:
    assert local.list_methods() == client.list_methods()
    mine, theirs = local.server_info(), client.server_info()
    for name in ("version", "numerics_version", "instruction_set", "dialects", "dialect_releases"):
        assert getattr(mine, name) == getattr(theirs, name)
    assert mine.limits.max_tokens == 1 << 40, "the memory is the caller's"


@pytest.mark.parametrize("setting", ["max_tokens=12", "max_sequences=3", "max_tokens=12&threads=2"])
def test_limits_are_settings_of_the_target(setting: str) -> None:
    with cw.Client(f"local:?{setting}") as limited:
        limited.correct(method="token_tis", **padded_batch(3, 4))
        with pytest.raises(
            cw.InvalidRequestError, match=r"response_mask\.shape\[.\]: must be"
        ) as error:
            limited.correct(method="token_tis", **padded_batch(4, 4))
    assert setting.partition("=")[2].partition("&")[0] in str(error.value)


def test_out_may_be_an_input(local: cw.Client) -> None:
    batch = padded_batch(6, 40)
    expected = local.correct(method="token_tis", **batch)
    own = batch["old_log_probs"]
    result = local.correct(method="token_tis", out={"weights": own}, **batch)
    assert result.weights is own
    np.testing.assert_array_equal(own, expected.weights)


def test_out_is_written_in_place(local: cw.Client) -> None:
    batch = padded_batch(6, 40)
    expected = local.correct(method="token_tis", **batch)
    weights = np.empty((6, 40), np.float32)
    result = local.correct(method="token_tis", out={"weights": weights}, **batch)
    assert result.weights is weights
    np.testing.assert_array_equal(weights, expected.weights)


def test_unaligned_inputs(local: cw.Client) -> None:
    batch = padded_batch(6, 40)
    expected = local.correct(method="token_tis", **batch)
    memory = np.empty(6 * 40 * 4 + 1, np.uint8)
    odd = memory[1:].view(np.float32).reshape(6, 40)
    odd[:] = batch["old_log_probs"]
    batch["old_log_probs"] = odd
    assert_same(local.correct(method="token_tis", **batch), expected)


def test_progress_and_what_it_raises(local: cw.Client) -> None:
    seen: list[tuple[int, int]] = []
    local.correct(method="token_tis", progress=lambda *n: seen.append(n), **padded_batch(2, 3))
    assert [sent for sent, _ in seen] == [0, seen[0][1]]
    with pytest.raises(ZeroDivisionError):
        local.correct(method="token_tis", progress=lambda *_: 1 // 0, **padded_batch(2, 3))


def test_timeout(local: cw.Client) -> None:
    with pytest.raises(cw.DeadlineError):
        local.correct(method="token_tis", timeout=1e-9, **padded_batch(2, 3))


def test_closed(local: cw.Client) -> None:
    del local
    client = cw.Client("local:")
    batch = padded_batch(400, 2000)
    pending = [client.submit(method=LOSS, **batch) for _ in range(3)]
    client.close()
    assert all(future.done() for future in pending)
    with pytest.raises(cw.CounterweightError, match="closed"):
        client.correct(method="token_tis", **padded_batch(2, 3))


def test_threads_share_a_client(local: cw.Client) -> None:
    batches = [padded_batch(20, 100, seed=seed) for seed in range(8)]
    expected = [local.correct(method="token_tis", **batch) for batch in batches]
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(20):
                assert_same(local.correct(method="token_tis", **batches[i]), expected[i])
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_aio(local: cw.Client) -> None:
    batch = padded_batch(20, 100)

    async def ask() -> cw.Result[Any]:
        async with cw.aio.Client("local:") as client:
            answers = [client.correct(method="token_tis", **batch) for _ in range(4)]
            return (await asyncio.gather(*answers))[-1]

    assert_same(asyncio.run(ask()), local.correct(method="token_tis", **batch))


def test_aio_cancelled() -> None:
    async def ask() -> None:
        async with cw.aio.Client("local:?threads=1") as client:
            call = asyncio.ensure_future(client.correct(method=LOSS, **padded_batch(400, 4000)))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await client.correct(method="token_tis", **padded_batch(2, 3))

    asyncio.run(ask())


def _in_child(client: cw.Client, batch: dict[str, Any], answers: Any) -> None:
    answers.put(client.correct(method="token_tis", **batch).weights)


def test_a_forked_child_uses_it(local: cw.Client) -> None:
    batch = padded_batch(20, 100)
    expected = local.correct(method="token_tis", **batch).weights
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(local, batch, answers))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    np.testing.assert_array_equal(answers.get(), expected)


def _all_calls_in_child(client: cw.Client, batch: dict[str, Any], answers: Any) -> None:
    called = client.correct(method="token_tis", **batch).weights
    submitted = client.submit(method="token_tis", **batch).result(30).weights
    client.close()
    answers.put([called, submitted])


def test_a_fork_while_other_threads_are_in_calls() -> None:
    """No thread of the child frees what these hold."""
    batch = padded_batch(20, 100)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    held, done = threading.Barrier(2), threading.Event()
    with cw.Client("local:", max_in_flight=1) as client:
        expected = client.correct(method="token_tis", **batch).weights
        background, calls = client._background, client._connection._calls

        def hold() -> None:
            with background._lock, background._slots, calls._lock:
                held.wait(60)
                done.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        child = context.Process(target=_all_calls_in_child, args=(client, batch, answers))
        child.start()
        done.set()
        child.join(60)
        holder.join(60)
        if child.exitcode is None:
            child.kill()
        assert child.exitcode == 0
        for weights in answers.get():
            np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("local:gpu", "the backend must be one of cpu, cuda; got 'gpu'"),
        ("local:?threads=0", "threads must be from 1 to 1024; got '0'"),
        ("local:?threads=two", "got 'two'"),
        ("local:?cores=2", "cores"),
        ("local:cuda?threads=2", "threads"),
    ],
)
def test_wrong_targets(target: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cw.Client(target)


@pytest.mark.parametrize(
    "settings",
    [
        {"transport": "unary"},
        {"on_unavailable": "local"},
        {"tls": cw.TlsConfig()},
        {"token": "secret"},
        {"token_file": "/run/token"},
        {"allow_insecure_token": True},
    ],
)
def test_settings_of_a_server(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        cw.Client("local:", **settings)


@pytest.fixture
def forgotten() -> Iterator[Callable[[], None]]:
    """The library is looked for again."""
    library.load.cache_clear()
    yield library.load.cache_clear
    library.load.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_a_library_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv(library.VARIABLE, str(tmp_path / "no.so"))
    with pytest.raises(cw.CounterweightError, match=r"COUNTERWEIGHT_LIBRARY names .*which is no"):
        cw.Client("local:")
    (tmp_path / "no.so").write_text("text")
    with pytest.raises(cw.CounterweightError, match="cannot be loaded"):
        cw.Client("local:")
