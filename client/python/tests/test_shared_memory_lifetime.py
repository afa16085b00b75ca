"""How long memory is shared: refused, overloaded, submitted and closed calls."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from fake_memory import Sharing, reach
from fake_server import Held, bad_request, failing, retry_info
from sample import (
    ALL,
    BATCH,
    SHAPE,
    Response,
    answer,
    assert_is_the_answer,
    destinations,
    sent,
)

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.shared_memory.region import SUPPORTED

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")


@pytest.mark.parametrize(
    "ending",
    [
        "deadline",
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    ],
    ids=str,
)
def test_outputs_of_a_call_without_the_servers_answer_are_not_used_again(
    sharing: Sharing, ending: Any
) -> None:
    """The server may write there later, over another batch's outputs."""
    server, memory = sharing
    held = Held()
    server.handler = held if ending == "deadline" else failing(ending, "who knows")
    with cw.Client(server.target, transport="shared_memory", retry=False) as client:
        with pytest.raises(cw.CounterweightError):
            client.correct(**BATCH, timeout=0.5 if ending == "deadline" else 30)
        server.handler = memory.serve(answer)
        for _ in range(2):
            assert_is_the_answer(client.correct(**BATCH, outputs=ALL))
        given_up, second, third = server.requests
        assert len(destinations(given_up)) == len(destinations(second)) == 1
        assert destinations(given_up).isdisjoint(destinations(second))
        assert destinations(second) == destinations(third)
        assert destinations(given_up).isdisjoint(memory.regions)
    reach(0)


def test_outputs_of_a_refused_call_are_used_again(sharing: Sharing, sharer: cw.Client) -> None:
    server, memory = sharing
    server.handler = bad_request("labels.run")
    with pytest.raises(cw.InvalidRequestError):
        sharer.correct(**BATCH)
    server.handler = memory.serve(answer)
    sharer.correct(**BATCH)
    refused, later = server.requests
    assert destinations(refused) == destinations(later) <= set(memory.regions)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "aio"])
def test_an_overloaded_server_gets_kept_regions_back(sharing: Sharing, asynchronous: bool) -> None:
    """The server counts idle regions, which could keep the next attempt out."""
    server, memory = sharing
    known: list[set[bytes]] = []
    serve = memory.serve(answer)

    def overloaded_at_second(request: Any, context: Any) -> Any:
        known.append(set(memory.regions))
        if len(known) == 2:
            failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(1))(request, context)
        return serve(request, context)

    server.handler = overloaded_at_second
    chosen: dict[str, Any] = {"transport": "shared_memory", "timeout": 30}

    async def use() -> None:
        async with counterweight_rl.aio.Client(server.target, **chosen) as aio:
            for _ in range(2):
                assert_is_the_answer(await aio.correct(**BATCH, outputs=ALL))

    if asynchronous:
        asyncio.run(use())
    else:
        with cw.Client(server.target, **chosen) as client:
            for _ in range(2):
                assert_is_the_answer(client.correct(**BATCH, outputs=ALL))
    first, refused, retried = known
    assert len(first) == len(retried) == 2
    assert first == refused
    assert first.isdisjoint(retried)


def test_a_batch_too_large_to_share_does_not_end_sharing(sharing: Sharing) -> None:
    server, memory = sharing
    server.handler = memory.serve(lambda request, _: Response(request_id=request.request_id))
    small, large = (
        {name: np.tile(BATCH[name], (1, times)) for name in list(BATCH)[:3]}
        for times in (60_000, 120_000)
    )
    server.info.limits.max_shared_memory_bytes = 5 << 20
    with cw.Client(server.target) as client:
        for batch in (small, large, small):
            client.correct(method="token_tis", **batch)
    assert len(server.headers) == 1  # the large one arrived in chunks
    assert memory.connections == 1
    chunked = [not request.tensors[0].HasField("shared_memory") for request in server.requests]
    assert (chunked[0], chunked[-1], chunked.count(True)) == (False, False, 1)


def test_submitted_batches(sharing: Sharing) -> None:
    """Ordinary arrays may be reused at once."""
    server, memory = sharing

    def echo(request: Any, context: Any) -> Response:
        data = sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data
        return Response(
            tensors=[tensor_pb2.Tensor(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=data)]
        )

    server.handler = memory.serve(echo)
    with cw.Client(server.target, transport="shared_memory", max_in_flight=4) as client:
        reused, futures = np.zeros(SHAPE, np.float32), []
        for number in range(20):
            reused.fill(number)
            futures.append(client.submit(**{**BATCH, "old_log_probs": reused}))
        for number, future in enumerate(futures):
            assert (future.result(30).weights == number).all()
        assert len(memory.regions) <= 8


@pytest.mark.parametrize("asked", [False, True], ids=["at first", "later"])
def test_closing_ends_what_is_in_flight(sharing: Sharing, asked: bool) -> None:
    """All memory is freed, although the errors still exist.

    Copies that ``submit`` makes before the server's capabilities are known are not in shared
    memory.
    """
    server, _ = sharing
    client = cw.Client(server.target, transport="shared_memory")
    if asked:
        client.correct(**BATCH)
    hold = Held()
    server.handler = hold
    futures = [client.submit(**BATCH) for _ in range(3)]
    for _ in futures:
        assert hold.arrived.acquire(timeout=150)
    client.close()
    for future in futures:
        error = future.exception(0)
        assert isinstance(error, cw.CounterweightError)
        assert error.code is grpc.StatusCode.CANCELLED
    reach(0)
    with pytest.raises(cw.CounterweightError, match="the client is closed"):
        client.correct(**BATCH)
    assert client.empty(3).shape == (3,)
    reach(0)


def test_a_closed_client_says_so(sharing: Sharing) -> None:
    client = cw.Client(sharing[0].target, transport="shared_memory")
    client.correct(**BATCH)
    client.close()
    with pytest.raises(cw.CounterweightError, match="the client is closed") as caught:
        client.correct(**BATCH)
    assert caught.value.code is grpc.StatusCode.CANCELLED
    array = client.empty(3)
    assert array.base is None
    reach(0)


def test_a_client_that_was_closed_before_its_first_call(sharing: Sharing) -> None:
    server, memory = sharing
    client = cw.Client(server.target, transport="shared_memory")
    client.close()
    assert client.empty(3).base is None
    with pytest.raises(cw.CounterweightError, match="the client is closed"):
        client.correct(**BATCH)
    assert (server.infos, memory.connections) == (0, 0)
