"""Batches in shared memory."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from fake_memory import REGISTER, Sharing, reach
from fake_server import Held, bad_request, failing, watch_payloads
from sample import (
    ALL,
    BATCH,
    MASK,
    OLD,
    SHAPE,
    WEIGHTS,
    Response,
    answer,
    assert_is_the_answer,
    destinations,
    sent,
)

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.shared_memory.region import SUPPORTED, Access

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")


def test_inputs_and_outputs_are_copied(sharing: Sharing, sharer: cw.Client) -> None:
    server, memory = sharing
    for _ in range(3):
        assert_is_the_answer(sharer.correct(**BATCH, outputs=ALL))
    for request in server.requests:
        assert sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data == OLD.tobytes()
        assert sent(request, tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data == MASK.tobytes()
        assert [tensor_pb2.TensorRole.Name(d.role) for d in request.destinations] == [
            f"TENSOR_ROLE_{name.upper()}" for name in ALL
        ]
    # One region of each kind is registered once for all calls.
    assert [(operation, access) for operation, access, _ in memory.packets] == [
        (REGISTER, Access.READ),
        (REGISTER, Access.WRITE),
    ]


def test_no_byte_travels(sharing: Sharing, sharer: cw.Client) -> None:
    server, _ = sharing
    sizes = watch_payloads(server)
    sharer.correct(**BATCH)
    assert sizes == [0]


def test_results_are_the_callers(sharer: cw.Client) -> None:
    first = sharer.correct(**BATCH, outputs=ALL)
    first.weights[...] = 9
    assert_is_the_answer(sharer.correct(**BATCH, outputs=ALL))
    assert (first.weights == 9).all()


def test_outputs_of_the_servers_choice(sharing: Sharing, sharer: cw.Client) -> None:
    """The answer has some of them; each call is one request."""
    server, memory = sharing

    def mask_only(request: Any, context: Any) -> Response:
        response = answer(request, context)
        return Response(request_id=request.request_id, tensors=[response.tensors[1]])

    def with_gradient(request: Any, context: Any) -> Response:
        response = answer(request, context)
        response.tensors.add(
            role="TENSOR_ROLE_GRADIENT", dtype="D_TYPE_F32", data=WEIGHTS.tobytes()
        )
        return response

    server.handler = memory.serve(mask_only)
    result = sharer.correct(**BATCH)
    np.testing.assert_array_equal(result.keep_mask, MASK)
    assert result.weights is None
    with pytest.raises(cw.InvalidRequestError, match=r"out\['weights'\]: the method has no such"):
        sharer.correct(**BATCH, out={"weights": np.zeros(SHAPE, np.float32)})
    server.handler = memory.serve(with_gradient)
    result = sharer.correct(**BATCH, current_log_probs=OLD)
    np.testing.assert_array_equal(result.gradient, WEIGHTS)
    # A gradient by log-probs that were not sent is in the message.
    np.testing.assert_array_equal(sharer.correct(**BATCH).gradient, WEIGHTS)
    assert [len(request.destinations) for request in server.requests] == [2, 2, 3, 2]


def test_empty_batches(sharing: Sharing, sharer: cw.Client) -> None:
    server, memory = sharing
    server.handler = memory.serve(
        lambda *_: Response(tensors=[{"role": "TENSOR_ROLE_KEEP_MASK", "dtype": "D_TYPE_U8"}])
    )
    empty = sharer.empty((0, 3))
    result = sharer.correct(
        rollout_log_probs=empty, old_log_probs=empty, response_mask=empty, method="token_tis"
    )
    assert result.keep_mask.shape == (0, 3)
    assert memory.packets == []


@pytest.mark.parametrize("loss", ["disconnect", "forget"])
def test_a_server_that_lost_its_regions_gets_them_again(
    sharing: Sharing, sharer: cw.Client, loss: str
) -> None:
    _, memory = sharing
    array = sharer.empty(SHAPE)
    array[...] = OLD
    batch = {**BATCH, "old_log_probs": array, "outputs": ALL}
    for _ in range(3):
        assert_is_the_answer(sharer.correct(**batch))
        getattr(memory, loss)()
    assert_is_the_answer(sharer.correct(**batch))
    assert memory.connections == 4
    assert len(memory.regions) == 3


@pytest.mark.parametrize(
    "refusal",
    [
        bad_request("tensors[0].shared_memory.handle"),
        failing(grpc.StatusCode.FAILED_PRECONDITION, "no such memory"),
    ],
    ids=["invalid", "precondition"],
)
def test_a_server_that_never_knows_its_regions_gets_chunks(sharing: Sharing, refusal: Any) -> None:
    server, memory = sharing

    def only_streams(request: Any, context: Any) -> Any:
        if request.tensors[0].HasField("shared_memory"):
            return refusal(request, context)
        return answer(request, context)

    server.handler = only_streams
    with cw.Client(server.target, timeout=300) as client:
        large = {name: np.tile(BATCH[name], (1, 200_000)) for name in list(BATCH)[:3]}
        with pytest.raises(cw.CounterweightError, match="cannot read"):  # the sample is smaller
            client.correct(method="token_tis", **large)
        assert len(server.headers) == 1
        assert memory.connections == 2
    with (
        cw.Client(server.target, transport="shared_memory") as client,
        pytest.raises(cw.CounterweightError, match="does not know memory") as caught,
    ):
        client.correct(**BATCH)
    assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_violations_of_the_request_end_it(sharing: Sharing, sharer: cw.Client) -> None:
    server, _ = sharing
    server.handler = bad_request("labels.run")
    with pytest.raises(cw.InvalidRequestError) as caught:
        sharer.correct(**BATCH)
    assert [violation.field for violation in caught.value.violations] == ["run"]
    assert len(server.requests) == 1


def test_memory_that_the_server_refuses(sharing: Sharing) -> None:
    server, memory = sharing
    memory.refuse = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    with (
        cw.Client(server.target, transport="shared_memory") as client,
        pytest.raises(cw.CounterweightError, match="RESOURCE_EXHAUSTED: I will not"),
    ):
        client.correct(**BATCH)
    assert server.requests == []


def test_an_answer_in_memory_that_was_not_given(sharing: Sharing, sharer: cw.Client) -> None:
    server, _ = sharing

    def elsewhere(request: Any, context: Any) -> Any:
        response = answer(request, context)
        response.tensors[0].ClearField("data")
        response.tensors[0].shared_memory.length = 24
        return response

    server.handler = elsewhere
    with pytest.raises(cw.CounterweightError, match="weights is in memory that it was not given"):
        sharer.correct(**BATCH)


def test_nobody_at_the_socket(sharing: Sharing) -> None:
    """The batch is streamed, and the client does not try the socket again."""
    server, memory = sharing
    server.info.shared_memory_socket = memory.path + "x"
    server.handler = failing(grpc.StatusCode.INTERNAL, "far enough")
    large = {name: np.tile(BATCH[name], (1, 200_000)) for name in list(BATCH)[:3]}
    with cw.Client(server.target) as client:
        for _ in range(2):
            with pytest.raises(cw.CounterweightError, match="far enough"):
                client.correct(method="token_tis", **large)
    assert len(server.headers) == 2
    with (
        cw.Client(server.target, transport="shared_memory") as client,
        pytest.raises(cw.CounterweightError, match="cannot connect"),
    ):
        client.correct(**BATCH)


def test_asyncio(sharing: Sharing) -> None:
    server, memory = sharing

    async def main() -> None:
        async with counterweight_rl.aio.Client(server.target, transport="shared_memory") as aio:
            array = await aio.empty(SHAPE)
            array[...] = OLD
            batch = {**BATCH, "old_log_probs": array, "outputs": ALL}
            for result in await asyncio.gather(*(aio.correct(**batch) for _ in range(8))):
                assert_is_the_answer(result)
            memory.forget()
            assert_is_the_answer(await aio.correct(**batch))

    asyncio.run(asyncio.wait_for(main(), 60))
    reach(0)


def test_cancelled_tasks_give_their_memory_back(sharing: Sharing) -> None:
    server, memory = sharing
    hold = Held()
    server.handler = hold

    async def main() -> None:
        async with counterweight_rl.aio.Client(server.target, transport="shared_memory") as aio:
            call = asyncio.create_task(aio.correct(**BATCH))
            assert await asyncio.to_thread(hold.arrived.acquire, timeout=150)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            server.handler = memory.serve(answer)
            await aio.correct(**BATCH)
            assert len(memory.regions) == 2
            given_up, later = server.requests
            assert destinations(given_up).isdisjoint(destinations(later))

    asyncio.run(asyncio.wait_for(main(), 60))
    reach(0)
