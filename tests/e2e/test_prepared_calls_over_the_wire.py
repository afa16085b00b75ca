"""Served calls that repeat an earlier kind go by a template: the same bytes, answers and errors."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import packed, padded_batch
from counterweight_rl import calls
from counterweight_rl.transport import prepared_calls, unary
from goldens import BLAMED_FIELDS, GOLDENS, SAMPLE, SYSTEMS, arguments
from prepared import BATCH, WRONG, by_plan
from server_process import DEADLINE_SECONDS, ServerProcess
from transports import ARRAYS, LARGE, LOSS, SMALL, assert_same

TRANSPORTS = ("unary", "stream", "shared_memory", "auto")
# Streams answer in parts; their results are made at once.
LATE = ("unary", "shared_memory")
ID = "a" * 32

CHANGES: list[dict[str, Any]] = [
    {"outputs": ("loss",)},
    {"outputs": ["keep_mask"]},
    {"outputs": ["sequence_reasons", "weights"]},
    {"metrics": False},
    {"run": "a", "replica": "b", "policy_version": 3, "request_id": "mine"},
    {"run": "a"},
    {"policy_version": 0},
    {"non_finite": cw.NonFinitePolicy.DROP},
    {"seed": 3},
    {"timeout": 100},
    {"timeout": float("inf")},
    {"global_counts": cw.GlobalCounts(num_tokens=1000, num_sequences=100)},
    {"response_mask": BATCH["response_mask"].astype(np.int64)},
    {"response_mask": BATCH["response_mask"].astype(bool)},
    {"old_log_probs": BATCH["old_log_probs"].astype(np.float64)},
    {"old_log_probs": BATCH["old_log_probs"].astype(np.float16)},
    {"old_log_probs": np.asfortranarray(BATCH["old_log_probs"])},
    {"old_log_probs": BATCH["old_log_probs"].astype(">f4")},
    {"advantages": BATCH["advantages"][:, 0]},
]


@pytest.fixture
def served(sharing: ServerProcess) -> Iterator[cw.Client]:
    with cw.Client(sharing.address, transport="unary") as connected:
        yield connected


def thrice(client: cw.Client, **call: Any) -> cw.Result[Any]:
    """Compares the third answer with the first; returns it."""
    first, _, third = [client.correct(**call) for _ in range(3)]
    assert not by_plan(first)
    assert_same(third, first)
    assert list(third.metrics) == list(first.metrics)
    assert third.staleness == first.staleness
    for name in ARRAYS:
        array = getattr(third, name)
        assert array is None or (array.flags.writeable and array.flags.aligned)
    return third


def message_of(client: cw.Client, call: dict[str, Any]) -> bytes | None:
    prepared = client._connection._prepared  # type: ignore[union-attr]
    short = prepared.call(prepared.key(call), call)
    return None if short is None else unary.encode(short.correction)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_goldens(sharing: ServerProcess, transport: Any, system: str) -> None:
    """A stream prepares nothing and "auto" chooses among the others: a part of the goldens will do."""
    answered = [
        golden
        for name, golden in GOLDENS.items()
        if golden["dialect"] == system and name not in BLAMED_FIELDS
    ][:: SAMPLE if transport in LATE else 11]
    prepared = 0
    for golden in answered:
        with cw.Client(sharing.address, transport=transport) as client:
            prepared += by_plan(thrice(client, **arguments(golden)))
    if transport != "stream":
        assert prepared > len(answered) / 3


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_output_of_every_layout(sharing: ServerProcess, transport: Any, name: str) -> None:
    batch = {**SMALL, **LARGE}[name]
    with cw.Client(sharing.address, transport=transport) as client:
        thrice(client, method=LOSS, outputs=ARRAYS, **batch)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_requests_are_the_same_bytes(served: cw.Client, change: dict[str, Any]) -> None:
    call = {"method": LOSS, **BATCH, **change}
    third = thrice(served, **call)
    assert by_plan(third)
    call.setdefault("request_id", ID)
    served.correct(**call)
    served.correct(**call)
    correction = calls.correct(**call).correction
    assert correction is not None
    assert message_of(served, call) == unary.encode(correction)


@pytest.mark.parametrize("padded_length", [None, 40])
def test_requests_of_packed_batches(served: cw.Client, padded_length: int | None) -> None:
    for seed in range(4):
        batch = packed(padded_batch(8, 32, seed=seed))
        call = {"method": LOSS, "request_id": ID, "padded_length": padded_length, **batch}
        served.correct(**call)
        correction = calls.correct(**call).correction
        assert correction is not None
        assert message_of(served, call) in (None, unary.encode(correction))
    assert message_of(served, call) is not None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_asyncio(sharing: ServerProcess, transport: Any) -> None:
    async def main() -> list[cw.Result[Any]]:
        async with counterweight_rl.aio.Client(sharing.address, transport=transport) as client:
            return [await client.correct(method=LOSS, outputs=ARRAYS, **BATCH) for _ in range(3)]

    first, _, third = asyncio.run(asyncio.wait_for(main(), DEADLINE_SECONDS))
    assert by_plan(third) == (transport != "stream")
    assert_same(third, first)


@pytest.mark.parametrize("transport", LATE)
@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_the_first_call(
    sharing: ServerProcess, transport: Any, name: str
) -> None:
    call: dict[str, Any] = {"method": cw.Preset("token_tis", upper=1), "request_id": "a", **BATCH}

    def failure(client: cw.Client, wrong: dict[str, Any]) -> Exception:
        with pytest.raises(Exception) as caught:
            client.correct(**{**call, **wrong})
        return caught.value

    with (
        cw.Client(sharing.address, transport=transport) as client,
        cw.Client(sharing.address, transport=transport) as fresh,
    ):
        for _ in range(3):
            client.correct(**call)
            client.correct(**call, out={"weights": np.empty((6, 37), np.float32)})
        expected = failure(fresh, WRONG[name])
        for _ in range(2):
            found = failure(client, WRONG[name])
            assert type(found) is type(expected)
            assert str(found) == str(expected)
            assert getattr(found, "violations", None) == getattr(expected, "violations", None)
            assert getattr(found, "request_id", None) == getattr(expected, "request_id", None)
        assert by_plan(client.correct(**call))


def test_out_is_written_in_place(served: cw.Client) -> None:
    expected = thrice(served, method="token_tis", **BATCH)
    weights = np.empty(BATCH["old_log_probs"].shape, np.float32)
    for _ in range(3):
        weights.fill(7)
        result = served.correct(method="token_tis", out={"weights": weights}, **BATCH)
        np.testing.assert_array_equal(weights, expected.weights)
        assert result.weights is weights
    assert by_plan(result)
    own = {**BATCH, "old_log_probs": BATCH["old_log_probs"].copy()}
    served.correct(method="token_tis", out={"weights": own["old_log_probs"]}, **own)
    np.testing.assert_array_equal(own["old_log_probs"], expected.weights)


def test_results_are_of_their_own(served: cw.Client) -> None:
    results = [served.correct(method="token_tis", **padded_batch(seed=s)) for s in range(6)]
    assert by_plan(results[5])
    for seed, result in enumerate(results):
        whole = calls.correct(method="token_tis", **padded_batch(seed=seed))
        assert_same(result, served._connection.run(whole))
    assert len({result.request_id for result in results}) == len(results)
    assert results[5].metrics is results[5].metrics
    for copied in (copy.deepcopy(results[5]), pickle.loads(pickle.dumps(results[5]))):
        assert_same(copied, results[5])
        assert copied.timing == results[5].timing
        assert repr(copied) == repr(results[5])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda answer: b"\x12\x00" + answer,  # a tensor without a role
        lambda answer: answer + answer[: len(answer) // 3],
        lambda answer: answer[: len(answer) // 3],
        lambda answer: answer.replace(b"\x08\x11\x10\x04", b"\x08\x11\x10\x01", 1),
        lambda answer: answer + b"\x12\x04\x08\x10\x10\x01",  # weights again
        lambda answer: b"",
        lambda answer: b"no message",
    ],
)
def test_wrong_answers_are_refused_as_in_the_first_call(
    served: cw.Client, monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    call = {"method": "token_tis", "outputs": ("weights", "keep_mask"), "request_id": ID, **BATCH}
    for _ in range(3):
        served.correct(**call)
    connection: Any = served._connection
    send = connection._send
    monkeypatch.setattr(connection, "_send", lambda *a: wrong(send(*a)))
    whole = calls.correct(**call)
    with pytest.raises(cw.CounterweightError) as expected:
        connection.run(whole)
    with pytest.raises(cw.CounterweightError) as found:
        served.correct(**call)
    assert str(found.value) == str(expected.value)
    assert found.value.code is expected.value.code


def test_fields_may_come_in_any_order(served: cw.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"method": "token_tis", "request_id": ID, **BATCH}
    expected = thrice(served, **call)
    connection: Any = served._connection
    send = connection._send
    # The id is known to have 32 bytes; it goes last.
    monkeypatch.setattr(connection, "_send", lambda *a: (m := send(*a))[34:] + m[:34])
    assert_same(served.correct(**call), expected)


def test_templates_are_bounded(served: cw.Client) -> None:
    for seed in range(2 * prepared_calls._MOST_TEMPLATES):
        for _ in range(2):
            served.correct(method="token_tis", seed=seed, **padded_batch(2, 3))
    kept = served._connection._prepared._templates  # type: ignore[union-attr]
    assert len(kept) == prepared_calls._MOST_TEMPLATES


def test_a_server_that_is_away_is_replaced(
    sharing: ServerProcess, local_library: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole call is there for all that the template does not know."""
    for choice in ("local", "identity"):
        with cw.Client(sharing.address, on_unavailable=choice, retry=False) as client:
            expected = thrice(client, method="token_tis", **BATCH)
            connection: Any = client._connection

            def away(*_: Any) -> bytes:
                raise cw.UnavailableError("away")

            monkeypatch.setattr(connection, "_send", away)
            answer = client.correct(method="token_tis", request_id=ID, **BATCH)
            assert answer.backend == ("local:cpu" if choice == "local" else "identity")
            assert answer.request_id == ID
            if choice == "local":
                np.testing.assert_array_equal(answer.weights, expected.weights)
            assert client.fallbacks == {choice: 1}


def test_threads_share_templates(sharing: ServerProcess) -> None:
    batches = [padded_batch(5, 30 + seed, seed=seed) for seed in range(8)]
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for i in range(100):
                at = (i + offset) % len(batches)
                assert_same(
                    client.correct(method="token_tis", seed=at, **batches[at]), expected[at]
                )
        except BaseException as error:
            failures.append(error)

    with cw.Client(sharing.address, transport="unary") as client:
        expected = [client.correct(method="token_tis", seed=i, **b) for i, b in enumerate(batches)]
        workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures
