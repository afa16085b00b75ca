"""The client for asyncio: the same requests, results and errors as the other one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Held, failing, in_turn, retry_info
from sample import MASK, OLD, ROLLOUT, SHAPE, WEIGHTS, answer

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import method_pb2

BATCH: dict[str, Any] = {
    "rollout_log_probs": ROLLOUT,
    "old_log_probs": OLD,
    "response_mask": MASK,
    "method": "token_tis",
}
Use = Callable[[counterweight_rl.aio.Client], Coroutine[Any, Any, Any]]


def run(server: FakeServer, use: Use, **arguments: Any) -> Any:
    """Runs ``use`` with a client in a loop of its own."""

    async def main() -> Any:
        async with counterweight_rl.aio.Client(server.target, **arguments) as client:
            return await use(client)

    return asyncio.run(asyncio.wait_for(main(), 30))


async def reach(semaphore: Any) -> None:
    """Waits for a thread of the server without stopping the loop."""
    assert await asyncio.to_thread(semaphore.acquire, timeout=150)


def test_requests_and_results_are_the_same(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    arguments = {**BATCH, "request_id": "mine", "run": "run-1", "seed": 3, "outputs": ("weights",)}
    expected = client.correct(**arguments)
    result = run(server, lambda aio: aio.correct(**arguments))
    assert server.requests[0] == server.requests[1]
    assert server.metadata[1]["user-agent"].startswith(f"counterweight-python/{cw.__version__}")
    np.testing.assert_array_equal(result.weights, WEIGHTS)
    assert result.weights.flags.writeable
    for name in ("metrics", "rules", "warnings", "request_id", "timing", "loss"):
        assert getattr(result, name) == getattr(expected, name)


def test_methods_and_info(server: FakeServer, client: cw.Client) -> None:
    server.methods = service_pb2.ListMethodsResponse(
        methods=[method_pb2.MethodInfo(name="token_tis", origin="counterweight")]
    )
    server.info = service_pb2.GetServerInfoResponse(version="0.1.0", backend="cpu")

    async def ask(aio: counterweight_rl.aio.Client) -> tuple[Any, Any]:
        return await aio.list_methods(), await aio.server_info()

    assert run(server, ask) == (client.list_methods(), client.server_info())


def test_calls_are_concurrent(server: FakeServer) -> None:
    held = Held()
    server.handler = held

    async def use(aio: counterweight_rl.aio.Client) -> list[cw.Result[Any]]:
        calls = [asyncio.create_task(aio.correct(**BATCH)) for _ in range(4)]
        for _ in calls:
            await reach(held.arrived)
        held.release()
        return await asyncio.gather(*calls)

    assert len({result.request_id for result in run(server, use)}) == 4


def test_cancelling_the_task_cancels_the_call(server: FakeServer) -> None:
    held = Held()
    server.handler = held

    async def use(aio: counterweight_rl.aio.Client) -> None:
        call = asyncio.create_task(aio.correct(**BATCH))
        await reach(held.arrived)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await reach(held.ended)
        # The connection is still usable.
        server.handler = answer
        assert (await aio.correct(**BATCH)).backend == "cpu"

    run(server, use)
    assert len(server.requests) == 2


def test_closing_ends_calls_with_an_error_instead(server: FakeServer) -> None:
    held = Held()
    server.handler = held

    async def use(aio: counterweight_rl.aio.Client) -> None:
        call = asyncio.create_task(aio.correct(**BATCH))
        await reach(held.arrived)
        await aio.close()
        for later in (call, aio.correct(**BATCH)):
            with pytest.raises(cw.CounterweightError, match="the client is closed") as caught:
                await later
            assert caught.value.code is grpc.StatusCode.CANCELLED
            assert caught.value.request_id
        await aio.close()

    run(server, use)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ],
)
def test_errors_are_the_same(server: FakeServer, code: grpc.StatusCode) -> None:
    server.handler = failing(code, "because", retry_info(1250))

    async def use(aio: counterweight_rl.aio.Client) -> cw.CounterweightError:
        with pytest.raises(cw.CounterweightError) as caught:
            await aio.correct(**BATCH, request_id="mine")
        return caught.value

    error = run(server, use, retry=False)
    with (
        cw.Client(server.target, retry=False) as client,
        pytest.raises(cw.CounterweightError) as caught,
    ):
        client.correct(**BATCH, request_id="mine")
    assert type(error) is type(caught.value)
    assert str(error) == str(caught.value)
    assert error.__dict__ == caught.value.__dict__


def test_wrong_arguments(server: FakeServer) -> None:
    async def use(aio: counterweight_rl.aio.Client) -> None:
        with pytest.raises(TypeError, match="response_mask must be"):
            await aio.correct(**{**BATCH, "response_mask": None})
        with pytest.raises(cw.InvalidRequestError, match="response_mask"):
            await aio.correct(**{**BATCH, "response_mask": MASK[0]})

    run(server, use)
    assert server.requests == []


def test_deadline(server: FakeServer) -> None:
    held = Held()
    server.handler = held

    async def use(aio: counterweight_rl.aio.Client) -> None:
        with pytest.raises(cw.DeadlineError):
            await aio.correct(**BATCH, timeout=0.05)

    run(server, use)


def test_refused_requests_are_tried_again(server: FakeServer) -> None:
    full = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(1))
    server.handler = in_turn(full, full, answer)
    result = run(server, lambda aio: aio.correct(**BATCH), retry=cw.RetryPolicy(seed=1))
    assert [request.request_id for request in server.requests] == [result.request_id] * 3


def test_cancelling_ends_a_pause(server: FakeServer) -> None:
    held = Held()
    held.release()

    def refuse(request: Any, context: Any) -> Any:
        held(request, context)
        return failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(3_600_000))(
            request, context
        )

    server.handler = refuse

    async def use(aio: counterweight_rl.aio.Client) -> None:
        call = asyncio.create_task(aio.correct(**BATCH))
        await reach(held.ended)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(server, use, timeout=None)
    assert len(server.requests) == 1


def test_out(server: FakeServer) -> None:
    server.handler = answer
    weights = np.zeros(SHAPE, np.float32)
    result = run(server, lambda aio: aio.correct(**BATCH, out={"weights": weights}))
    assert result.weights is weights
    np.testing.assert_array_equal(weights, WEIGHTS)
