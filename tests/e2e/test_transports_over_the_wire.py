"""One message, chunks of any size, shared memory: the bytes do not depend on the transport."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import packed, padded_batch
from goldens import SAMPLE
from server_process import DEADLINE_SECONDS, ServerProcess
from test_golden_over_the_wire import GOLDENS
from test_golden_over_the_wire import correct as correct_golden
from transports import ARRAYS, LARGE, LOSS, SMALL, assert_same

CHUNK_BYTES = (1, 3, 4097, 2 << 20, 16 << 20)
BATCHES = SMALL | LARGE


@pytest.fixture(scope="module")
def expected(sharing: ServerProcess) -> dict[str, cw.Result[Any]]:
    """Returns the answers by one message."""
    with cw.Client(sharing.address, transport="unary") as client:
        return {
            name: client.correct(method=LOSS, outputs=(*ARRAYS, "loss"), **batch)
            for name, batch in BATCHES.items()
        }


def outputs_like(expected: cw.Result[Any], make: Callable[..., Any]) -> dict[str, Any]:
    arrays = ((name, getattr(expected, name)) for name in ARRAYS)
    return {n: make(tuple(array.shape), array.dtype) for n, array in arrays}


WAYS = [
    *(pytest.param({"transport": "stream", "chunk_bytes": n}, id=f"{n} B") for n in CHUNK_BYTES),
    pytest.param({"transport": "shared_memory"}, id="shared memory"),
    pytest.param({}, id="auto"),
]
# Large batches in tiny chunks would be millions of messages.
CASES = [
    pytest.param(*way.values, name, id=f"{way.id}-{name}")
    for way in WAYS
    for name in (SMALL if way.id in ("1 B", "3 B") else BATCHES)
]


@pytest.mark.parametrize(("way", "name"), CASES)
def test_answers_are_equal(
    sharing: ServerProcess, expected: dict[str, cw.Result[Any]], way: dict[str, Any], name: str
) -> None:
    arguments = {"method": LOSS, "outputs": (*ARRAYS, "loss"), **BATCHES[name]}
    with cw.Client(sharing.address, **way) as client:
        assert_same(client.correct(**arguments), expected[name])
        assert_same(client.submit(**arguments).result(DEADLINE_SECONDS), expected[name])
        out = outputs_like(expected[name], lambda shape, dtype: np.full(shape, 7, dtype))
        result = client.correct(**arguments, out=out)
        assert_same(result, expected[name])
        assert all(getattr(result, output) is array for output, array in out.items())

    async def main() -> cw.Result[Any]:
        async with counterweight_rl.aio.Client(sharing.address, **way) as aio:
            return await aio.correct(**arguments)

    assert_same(asyncio.run(asyncio.wait_for(main(), DEADLINE_SECONDS)), expected[name])


@pytest.fixture(scope="module")
def goldens_by_message(sharing: ServerProcess) -> dict[str, Any]:
    return golden_answers(sharing, transport="unary")


@pytest.mark.parametrize("way", WAYS)
def test_goldens_are_equal(
    sharing: ServerProcess, goldens_by_message: dict[str, Any], way: dict[str, Any]
) -> None:
    """Other systems' cases, including errors; test_golden_over_the_wire checks their values."""
    for name, answer in golden_answers(sharing, **way).items():
        expected = goldens_by_message[name]
        if isinstance(expected, cw.Result):
            assert_same(answer, expected)
        else:
            assert answer == expected, name


def golden_answers(server: ServerProcess, **way: Any) -> dict[str, Any]:
    """Returns results, and texts of errors; only some cases use tiny chunks, which are slow.

    One message takes all, as the others are compared with it.
    """
    sample = 1 if way == {"transport": "unary"} else SAMPLE
    step = max(sample, {1: 400, 3: 150}.get(way.get("chunk_bytes", 0), 1))
    answers: dict[str, Any] = {}
    with cw.Client(server.address, **way) as client:
        for name, golden in list(GOLDENS.items())[::step]:
            try:
                answers[name] = correct_golden(client, golden)
            except cw.InvalidRequestError as error:
                answers[name] = str(error), error.violations
    return answers


@pytest.mark.parametrize("name", BATCHES)
def test_arrays_in_shared_memory(
    sharing: ServerProcess, expected: dict[str, cw.Result[Any]], name: str
) -> None:
    with cw.Client(sharing.address, transport="shared_memory") as client:
        batch = {}
        for argument, array in BATCHES[name].items():
            if isinstance(array, np.ndarray) and argument != "sequence_lengths":
                batch[argument] = client.empty(array.shape, array.dtype)
                batch[argument][...] = array
            else:
                batch[argument] = array
        arguments = {"method": LOSS, "outputs": (*ARRAYS, "loss"), **batch}
        out = outputs_like(expected[name], lambda s, d: client.empty(s, d, access="output"))
        for _ in range(2):
            result = client.correct(**arguments, out=out)
            assert_same(result, expected[name])
            assert all(getattr(result, output) is array for output, array in out.items())
        assert_same(client.submit(**arguments).result(DEADLINE_SECONDS), expected[name])


@pytest.mark.parametrize("way", WAYS[2:])
@pytest.mark.parametrize("method", [LOSS, "token_tis", "seq_mis"], ids=["loss", "tis", "mis"])
def test_torch(sharing: ServerProcess, way: dict[str, Any], method: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    batch = {
        name: torch.from_numpy(array).to(torch.bool if name == "response_mask" else torch.bfloat16)
        for name, array in LARGE["wide"].items()
    }
    with cw.Client(sharing.address, transport="unary") as client:
        expected = client.correct(method=method, **batch)
    with cw.Client(sharing.address, **way) as client:
        result = client.correct(method=method, **batch)
        assert_same(result, expected)
        shared = {
            name: client.empty(tuple(tensor.shape), tensor.dtype).copy_(tensor)
            for name, tensor in batch.items()
        }
        out = {
            name: client.empty(tuple(tensor.shape), tensor.dtype, access="output")
            for name in ("weights", "keep_mask")
            if (tensor := getattr(expected, name)) is not None
        }
        result = client.correct(method=method, out=out, **shared)
        assert_same(result, expected)
        assert all(getattr(result, name) is tensor for name, tensor in out.items())


def wrong_requests() -> dict[str, dict[str, Any]]:
    batch = {"method": "token_tis", **padded_batch(40, 9000, seed=5)}
    nan, bad_mask = batch["old_log_probs"].copy(), batch["response_mask"].copy()
    nan[3, 0], bad_mask[1, 1] = np.nan, 2
    no_old = {name: array for name, array in batch.items() if name != "old_log_probs"}
    return {
        "method": {**batch, "method": "token_tiss", "run": "not a label"},
        "missing": no_old,
        "not finite": {**batch, "old_log_probs": nan},
        "mask": {**batch, "response_mask": bad_mask},
        "output": {**batch, "outputs": ["gradient"]},
        "out": {**batch, "out": {"gradient": np.zeros((40, 9000), np.float32)}},
        "lengths": {
            **packed(padded_batch(4, 9)),
            "sequence_lengths": [2, 2],
            "method": "token_tis",
        },
        "negative": {
            **packed(padded_batch(4, 9)),
            "sequence_lengths": [-2, 2],
            "method": "token_tis",
        },
        "parameter": {**batch, "method": cw.Preset("token_tis", uper=2.0, allow_unknown=True)},
    }


@pytest.mark.parametrize("wrong", wrong_requests())
def test_errors_are_equal(sharing: ServerProcess, wrong: str) -> None:
    def error(**way: Any) -> tuple[Any, ...]:
        with (
            cw.Client(sharing.address, **way) as client,
            pytest.raises(cw.CounterweightError) as caught,
        ):
            client.correct(**wrong_requests()[wrong])
        violations = getattr(caught.value, "violations", None)
        return type(caught.value), caught.value.code, violations, str(caught.value)

    expected = error(transport="unary")
    assert expected[0] is cw.InvalidRequestError
    assert error(transport="stream") == expected
    assert error(transport="shared_memory") == expected
    assert error() == expected


def test_threads_and_memory_are_shared(
    sharing: ServerProcess, expected: dict[str, cw.Result[Any]]
) -> None:
    """Many concurrent batches of two shapes over one client."""
    arguments = {"method": LOSS, "outputs": (*ARRAYS, "loss")}
    with cw.Client(sharing.address, transport="shared_memory", max_in_flight=8) as client:
        names = list(BATCHES) * 6
        futures = [client.submit(**arguments, **BATCHES[name]) for name in names]
        for name, future in zip(names, futures, strict=True):
            assert_same(future.result(DEADLINE_SECONDS), expected[name])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux only")
def test_progress_and_cancellation(sharing: ServerProcess) -> None:
    total = sum(array.nbytes for array in LARGE["wide"].values())
    for way in ("unary", "stream", "shared_memory"):
        told: list[tuple[int, int]] = []
        with cw.Client(sharing.address, transport=way) as client:  # type: ignore[arg-type]
            client.correct(method=LOSS, progress=lambda *a: told.append(a), **LARGE["wide"])  # noqa: B023

            def raises(sent: int, total: int) -> None:
                raise KeyError("enough")

            with pytest.raises(KeyError, match="enough"):
                client.correct(method=LOSS, progress=raises, **LARGE["wide"])
            client.correct(method=LOSS, **LARGE["wide"])
        assert told[0] == (0, total)
        assert told[-1] == (total, total)
        assert (len(told) > 2) == (way == "stream")
