"""The asyncio client, batches in the background and reused outputs, against the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import packed, padded_batch
from server_process import DEADLINE_SECONDS, ServerProcess

ALL = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient", "loss")
LOSS = cw.Preset(
    "token_tis",
    policy_loss=cw.PolicyLoss(
        surrogate=cw.Surrogate.PPO_CLIP,
        aggregation=cw.LossAggregation.TOKEN_MEAN,
        denominator=cw.LossDenominator.ORIGINAL,
        clip_low=0.2,
        clip_high=0.2,
    ),
)
# Shapes, spreads and layouts differ, so that a mixed-up answer shows.
BATCHES: list[dict[str, Any]] = [
    padded_batch(),
    padded_batch(3, 9000, seed=1),
    packed(padded_batch(16, 64, seed=2)),
    padded_batch(1, 1, seed=3),
    padded_batch(8, 512, spread=1.0, seed=4),
    padded_batch(8, 512, spread=1.0, seed=5),
]


def run(
    server: ServerProcess, use: Callable[[counterweight_rl.aio.Client], Coroutine[Any, Any, Any]]
) -> Any:
    """Runs ``use`` with a client in a loop of its own."""

    async def main() -> Any:
        async with counterweight_rl.aio.Client(server.address) as aio:
            return await use(aio)

    return asyncio.run(asyncio.wait_for(main(), DEADLINE_SECONDS))


def assert_same(result: cw.Result[Any], expected: cw.Result[Any]) -> None:
    """Compares everything but times byte for byte."""
    for name in ALL[:-1]:
        a, b = getattr(result, name), getattr(expected, name)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), name
    for name in ("loss", "metrics", "rules", "non_finite_tokens", "warnings", "backend"):
        np.testing.assert_equal(getattr(result, name), getattr(expected, name), err_msg=name)
    assert result.numerics_version == expected.numerics_version


def correct_all(client: cw.Client) -> list[cw.Result[Any]]:
    return [client.correct(method=LOSS, outputs=ALL, **batch) for batch in BATCHES]


def test_results_are_those_of_the_synchronous_client(
    server: ServerProcess, client: cw.Client
) -> None:
    """All batches run concurrently, several times over one connection."""

    async def use(aio: counterweight_rl.aio.Client) -> list[cw.Result[Any]]:
        return await asyncio.gather(
            *(aio.correct(method=LOSS, outputs=ALL, **batch) for batch in BATCHES * 4)
        )

    results = run(server, use)
    assert len({result.request_id for result in results}) == len(results)
    for result, expected in zip(results, correct_all(client) * 4, strict=True):
        assert_same(result, expected)


def test_methods_and_info(server: ServerProcess, client: cw.Client) -> None:
    async def use(aio: counterweight_rl.aio.Client) -> tuple[Any, Any]:
        return await aio.list_methods(), await aio.server_info()

    assert run(server, use) == (client.list_methods(), client.server_info())


def test_errors_are_those_of_the_synchronous_client(
    server: ServerProcess, client: cw.Client
) -> None:
    arguments = {**BATCHES[0], "method": "token_tiss", "run": "not a label", "request_id": "mine"}

    async def use(aio: counterweight_rl.aio.Client) -> cw.InvalidRequestError:
        with pytest.raises(cw.InvalidRequestError) as caught:
            await aio.correct(**arguments)
        return caught.value

    error = run(server, use)
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(**arguments)
    assert str(error) == str(caught.value)
    assert error.__dict__ == caught.value.__dict__


def test_cancelled_calls_leave_the_others_alone(server: ServerProcess, client: cw.Client) -> None:
    """A quarter is cancelled just after its begin, a quarter at a random point."""
    batch = padded_batch(16, 4096, seed=6)

    async def use(aio: counterweight_rl.aio.Client) -> list[Any]:
        calls = [
            asyncio.create_task(aio.correct(method=LOSS, outputs=ALL, **batch)) for _ in range(32)
        ]
        await asyncio.sleep(0)  # lets each of them begin; no answer can be there yet
        for call in calls[1::4]:
            call.cancel()
        await asyncio.wait(calls[::2], return_when=asyncio.FIRST_COMPLETED)
        for call in calls[3::4]:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    ended = run(server, use)
    expected = client.correct(method=LOSS, outputs=ALL, **batch)
    for result in ended[::2]:
        assert_same(result, expected)
    for result in ended[1::4]:
        assert isinstance(result, asyncio.CancelledError)
    for result in ended[3::4]:
        # The call was answered before it was cancelled.
        if not isinstance(result, asyncio.CancelledError):
            assert_same(result, expected)


def test_submitted_batches(client: cw.Client) -> None:
    futures = [client.submit(method=LOSS, outputs=ALL, **batch) for batch in BATCHES * 4]
    for future, expected in zip(futures, correct_all(client) * 4, strict=True):
        assert_same(future.result(DEADLINE_SECONDS), expected)


def test_reused_outputs(client: cw.Client) -> None:
    """One set of arrays serves many batches; the last bytes equal those of new arrays."""
    shape = BATCHES[4]["response_mask"].shape
    out: dict[str, Any] = {
        "weights": np.full(shape, np.nan, np.float32),
        "keep_mask": np.full(shape, 9, np.uint8),
        "gradient": np.full(shape, np.nan, np.float32),
    }
    for batch in BATCHES[4:]:
        result = client.correct(method=LOSS, out=out, **batch)
        expected = client.correct(method=LOSS, **batch)
        assert result.loss == expected.loss
        for name, array in out.items():
            assert getattr(result, name) is array
            assert array.tobytes() == getattr(expected, name).tobytes()


def test_an_output_that_the_method_does_not_have(client: cw.Client) -> None:
    gradient = np.zeros(BATCHES[0]["response_mask"].shape, np.float32)
    with pytest.raises(cw.InvalidRequestError, match=r"out\['gradient'\]: the method has no such"):
        client.correct(method="token_tis", out={"gradient": gradient}, **BATCHES[0])


def test_a_full_server_is_asked_again(start_server: Callable[..., ServerProcess]) -> None:
    """More callers than places: every caller is served in the end, and each batch counts once."""
    server = start_server("--max_requests_in_flight=1", "--max_queued_requests=0")
    batch = padded_batch(16, 1024, seed=7)
    patient = cw.RetryPolicy(attempts=1000, seed=0)

    async def use() -> list[cw.Result[Any]]:
        async with counterweight_rl.aio.Client(server.address, retry=patient) as aio:
            return await asyncio.gather(
                *(aio.correct(method=LOSS, outputs=ALL, run="full", **batch) for _ in range(8))
            )

    refused = 'counterweight_requests_total{code="RESOURCE_EXHAUSTED",method="Correct"}'
    served = 0
    while not server.count(refused):  # On a busy machine they may arrive one after the other.
        first, *others = asyncio.run(asyncio.wait_for(use(), DEADLINE_SECONDS))
        for other in others:
            assert_same(other, first)
        served += 8
    assert server.metric('counterweight_drift_batches_total{run="full"}') == served
